"""TLS, logins and permissions of the Kafka channel, with real brokers. Each thing that can be wrong
is an error that names what to change. No message, log, ``repr`` or pickle shows a secret."""

from __future__ import annotations

import datetime
import logging
import pickle
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest
from certificates import DAY, Authority
from fakes import STREAM
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka_server import Cluster, running
from many_sites import ManySites

from spark_wan.channels.base import Note
from spark_wan.channels.kafka.client import KafkaChannel
from spark_wan.channels.kafka.topics import ACKS, FRAMES, LOG
from spark_wan.cli.app import main
from spark_wan.errors import ChannelError, NotBegunError
from spark_wan.log.notes import ack_versions, acks, announce, put_ack, withdraw
from spark_wan.wire.manifest import fingerprint

PASSWORD = "corr3ct-h0rse"
KEY_PASSWORD = "battery-stapl3"
WRONG = "wr0ng-secret"
USERS = {
    "SCRAM-SHA-256": dict.fromkeys(("sender", "limited", "receiver"), PASSWORD),
    "SCRAM-SHA-512": {"sender-512": PASSWORD},
}
"""Mechanism -> name -> password. No user has logins of both."""
Permission: TypeAlias = tuple[str, ACLOperation]
"""Part of the channel whose topic it is for, and what is permitted."""
DELETE = (("frames", ACLOperation.DELETE), ("log", ACLOperation.DELETE))
ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.usefixtures("closing_brokers"), pytest.mark.rest]


@dataclass
class Secured:
    cluster: Cluster
    authority: Authority
    client: Path
    expired: Path

    def channel(self, listener: str, prefix: str, **changes: str | None) -> KafkaChannel:
        """Open a channel by a listener; ``changes`` of its options, None: leave it out."""
        options = {
            "kafka.security.protocol": listener,
            "kafka.request.timeout.ms": "4000",
            "kafka.ssl.truststore.location": str(self.authority.file),
        }
        if listener == "SSL":
            options["kafka.ssl.keystore.location"] = str(self.client)
            options["kafka.ssl.key.password"] = KEY_PASSWORD
        if listener.startswith("SASL"):
            options["kafka.sasl.mechanism"] = "SCRAM-SHA-256"
            options["kafka.sasl.jaas.config"] = login("sender")
        options.update({f"kafka.{name}": text for name, text in changes.items() if text})
        for name, text in changes.items():
            if text is None:
                options.pop(f"kafka.{name}")
        host = "localhost" if changes.pop("host", None) else "127.0.0.1"
        options.pop("kafka.host", None)
        servers = self.cluster.servers(listener).replace("127.0.0.1", host)
        return KafkaChannel(f"kafka://{servers}/{prefix}", options)


def login(name: str, password: str = PASSWORD, mechanism: str = "scram.Scram") -> str:
    return (
        f"org.apache.kafka.common.security.{mechanism}LoginModule required "
        f'username="{name}" password="{password}";'
    )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker with TLS (client certificates), SASL_SSL (SCRAM), and a plain listener."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "certificates")
    server = authority.issue("server", "127.0.0.1")
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(USERS),
        **{
            f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
            for mechanism in USERS
        },
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:sender;User:sender-512;User:CN=client",
    }
    listeners = ("PLAINTEXT", "SSL", "SASL_SSL")
    with running(folder / "kafka", 1, listeners, settings, USERS) as cluster:
        client = authority.issue("client", password=KEY_PASSWORD)
        expired = authority.issue("expired", valid=-DAY, password=KEY_PASSWORD)
        yield Secured(cluster, authority, client, expired)


SHA_512 = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login("sender-512")}


@pytest.mark.parametrize(
    ("listener", "changes"), [("SSL", {}), ("SASL_SSL", {}), ("SASL_SSL", SHA_512)]
)
def test_a_channel_works_with_certificates_and_with_passwords(
    secured: Secured,
    listener: str,
    changes: dict[str, str | None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails also when the client, which logs its settings, logs a secret."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "kafka")
    monkeypatch.setattr(logging.getLogger("kafka"), "propagate", True)
    channel = secured.channel(listener, uuid.uuid4().hex, **changes)
    channel.prepare()
    path = channel.put_frame(STREAM, "c" * 32, 0, b"f")
    channel.append(STREAM, 1, b"m", frames=[path])
    assert (channel.get_frame(path), channel.epochs()) == (b"f", {STREAM: [1]})
    assert "kafka" in {record.name.partition(".")[0] for record in caplog.records}
    shown = caplog.text + repr(channel) + repr(channel.broker.options)
    assert PASSWORD not in shown
    assert KEY_PASSWORD not in shown


def test_a_pickle_has_the_reference_to_a_secret_only(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tasks are pickled, and Spark may write them to disk. Fails when a reference is resolved
    before."""
    monkeypatch.setenv("WAN_KAFKA_PASSWORD", PASSWORD)
    (tmp_path / "password").write_text(KEY_PASSWORD + "\n")
    by_login = secured.channel(
        "SASL_SSL", "refs", **{"sasl.jaas.config": login("sender", "${env:WAN_KAFKA_PASSWORD}")}
    )
    by_key = secured.channel(
        "SSL", "refs", **{"ssl.key.password": f"${{file:{tmp_path}/password}}"}
    )
    for channel in (by_login, by_key):
        channel.prepare()
        pickled = pickle.dumps(channel)
        assert PASSWORD.encode() not in pickled
        assert KEY_PASSWORD.encode() not in pickled
        copy = pickle.loads(pickled)
        assert copy.epochs() == {}
        copy.close()


def other_authority(secured: Secured) -> str:
    return str(Authority(secured.authority.folder / "other", "other").file)


@pytest.mark.parametrize(
    ("listener", "changes", "named"),
    [
        ("SASL_SSL", {"sasl.jaas.config": login("sender", WRONG)}, "user name, password"),
        ("SASL_SSL", {"sasl.jaas.config": login("nobody", WRONG)}, "user name, password"),
        (
            "SASL_SSL",
            {**SHA_512, "sasl.jaas.config": login("sender-512", WRONG)},
            "user name, password",
        ),
        ("SASL_SSL", {**SHA_512, "sasl.jaas.config": login("sender")}, "kafka.sasl.mechanism"),
        (
            "SASL_SSL",
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": login("sender", mechanism="plain.Plain"),
            },
            "kafka.sasl.mechanism",
        ),
        ("SASL_SSL", {"host": "localhost"}, "certificate is for another host name"),
        ("SASL_SSL", {"ssl.truststore.location": "OTHER"}, "ssl.truststore.location"),
        ("SSL", {"ssl.keystore.location": "EXPIRED"}, "ssl.keystore.location"),
        ("SSL", {"ssl.keystore.location": None, "ssl.key.password": None}, "ssl.keystore.location"),
        ("PLAINTEXT", {"security.protocol": "SSL"}, "does not speak TLS|closed the connection"),
        ("SSL", {"security.protocol": "PLAINTEXT", "only": "plain"}, "security.protocol"),
    ],
)
def test_what_is_wrong_is_named(
    secured: Secured, listener: str, changes: dict[str, str | None], named: str
) -> None:
    values = {"OTHER": other_authority(secured), "EXPIRED": str(secured.expired)}
    changes = {name: values.get(str(text), text) for name, text in changes.items()}
    if changes.pop("only", None):
        servers = secured.cluster.servers(listener)
        channel = KafkaChannel(
            f"kafka://{servers}/x",
            {"kafka.security.protocol": "PLAINTEXT", "kafka.request.timeout.ms": "4000"},
        )
    elif listener == "PLAINTEXT":
        servers = secured.cluster.servers()
        trusted = {"kafka.ssl.truststore.location": str(secured.authority.file)}
        channel = KafkaChannel(
            f"kafka://{servers}/x",
            {"kafka.security.protocol": "SSL", "kafka.request.timeout.ms": "4000", **trusted},
        )
    else:
        channel = secured.channel(listener, "x", **changes)
    with pytest.raises(ChannelError) as error:
        channel.prepare()
    message = str(error.value)
    assert any(each in message for each in named.split("|")), message
    assert WRONG not in message
    assert PASSWORD not in message


def test_an_expired_certificate_of_the_broker_is_named(secured: Secured, tmp_path: Path) -> None:
    expired = secured.authority.issue("old", "127.0.0.1", valid=-datetime.timedelta(hours=1))
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(expired)}
    with running(tmp_path / "kafka", 1, ("PLAINTEXT", "SSL"), settings) as cluster:
        options = {
            "kafka.security.protocol": "SSL",
            "kafka.request.timeout.ms": "4000",
            "kafka.ssl.truststore.location": str(secured.authority.file),
        }
        channel = KafkaChannel(f"kafka://{cluster.servers('SSL')}/x", options)
        with pytest.raises(ChannelError, match="certificate has expired: renew it"):
            channel.prepare()


# --- what commands print


@dataclass
class Commands:
    """``spark-wan`` with a topology of its own for each command, over the secured broker."""

    secured: Secured
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, command: str, form: str, listener: str, **changes: str | None) -> tuple[int, str]:
        """Return the exit code of a command, and all that it prints."""
        prefix = uuid.uuid4().hex
        if command == "status":
            self.secured.channel("SASL_SSL", f"{prefix}.newark0").prepare()
        changes = {"request.timeout.ms": "2000", **changes}
        channel = self.secured.channel(listener, f"{prefix}.newark0", **changes)
        sites = ManySites.make(
            self.folder / prefix,
            {"newark": [["seattle"]], "seattle": []},
            channels=channel.url.removesuffix("newark0"),
            storage=channel.storage,
        )
        config = str(sites.folder / "wan.yaml")
        words = ["spark-wan", command, "--config", config, "--output", form]
        self.monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        printed = self.capsys.readouterr()
        return int(end.value.code or 0), printed.out + printed.err


@pytest.fixture
def commands(
    secured: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Commands:
    return Commands(secured, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("given", ["in place", "by reference"])
def test_commands_print_no_password(
    commands: Commands, caplog: pytest.LogCaptureFixture, given: str, form: str
) -> None:
    """Nor log it, also where the login is refused. Fails when an error, a report or a log quotes
    the options of a channel."""
    caplog.set_level(logging.DEBUG)
    for password, code in ((PASSWORD, 0), (WRONG, 1)):
        commands.monkeypatch.setenv("WAN_KAFKA_PASSWORD", password)
        written = password if given == "in place" else "${env:WAN_KAFKA_PASSWORD}"
        jaas = {"sasl.jaas.config": login("sender", written)}
        for command in ("validate", "status"):
            ended, printed = commands.run(command, form, "SASL_SSL", **jaas)
            assert ended == (0 if command == "validate" else code), printed
            assert ("user name, password" in printed) == (ended == 1)
            assert password not in printed + caplog.text
            assert "newark0" in printed


@pytest.mark.parametrize(
    ("listener", "option", "secret", "of_commands"),
    [
        ("SSL", "ssl.key.password", WRONG, {"validate": 0, "status": 1}),
        (
            "SASL_SSL",
            "sasl.jaas.config",
            f'scram.ScramLoginModul required username="sender" password="{WRONG}";',
            {"validate": 1, "status": 1},
        ),
        ("SASL_SSL", "sasl.mechanism.password", WRONG, {"validate": 1, "status": 1}),
    ],
    ids=["password of another key", "login with a mistake", "unknown option"],
)
def test_commands_print_no_secret_that_cannot_be_used(
    commands: Commands, listener: str, option: str, secret: str, of_commands: dict[str, int]
) -> None:
    """The password of another key, a login with a mistake, an unknown option: each is named. Fails
    when its value is quoted."""
    for command, code in of_commands.items():
        ended, printed = commands.run(command, "text", listener, **{option: secret})
        assert ended == code, printed
        assert (f"kafka.{option}" in printed) == (code == 1), printed
        assert WRONG not in printed


# --- permissions


def documented(who: str) -> list[Permission]:
    """Return what docs/kafka.md lists for ``senders`` or ``receivers``: topic and operation."""
    page = (ROOT / "docs" / "kafka.md").read_text()
    rows = page.partition("## Permissions")[2].partition("##")[0].splitlines()
    permissions, of = list[Permission](), ""
    for row in rows:
        if row.startswith("|"):
            name, topics, operations = (cell.strip() for cell in row.strip("|").split("|"))
            of = name or of
            if of.startswith(who):
                permissions += [
                    (topic.strip("` "), ACLOperation[operation.strip().upper()])
                    for topic in topics.split(",")
                    for operation in operations.split(",")
                ]
    return permissions


def grant(secured: Secured, user: str, prefix: str, *permissions: Permission) -> None:
    set_acls(secured, user, prefix, ACLPermissionType.ALLOW, permissions)


def deny(secured: Secured, user: str, prefix: str, *permissions: Permission) -> None:
    """Take permissions away, also where another one implies them."""
    set_acls(secured, user, prefix, ACLPermissionType.DENY, permissions)


def set_acls(
    secured: Secured,
    user: str,
    prefix: str,
    permission_type: ACLPermissionType,
    permissions: Sequence[Permission],
) -> None:
    acls = [
        ACL(
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=permission_type,
            resource_pattern=ResourcePattern(ResourceType.TOPIC, f"{prefix}.{topic}"),
        )
        for topic, operation in permissions
    ]
    with closing(KafkaAdminClient(bootstrap_servers=secured.cluster.bootstrap)) as client:
        client.create_acls(acls)


@pytest.fixture
def made(secured: Secured) -> KafkaChannel:
    """A channel whose topics an administrator has made. They are empty."""
    channel = secured.channel("SASL_SSL", uuid.uuid4().hex)
    channel.storage["topics.partitions"] = "1"
    settings = {"frames": FRAMES, "log": LOG, "acks": ACKS}
    channel.broker.prepare({f"{channel.prefix}.{part}": each for part, each in settings.items()})
    return channel


def opened_by(secured: Secured, user: str, made: KafkaChannel) -> KafkaChannel:
    channel = secured.channel("SASL_SSL", made.prefix, **{"sasl.jaas.config": login(user)})
    channel.keeper.log_operations = channel.keeper.frames_at_once = 4
    return channel


def do_all_that_a_sender_does(channel: KafkaChannel) -> None:
    """Publish some epochs, of which nobody reads the frames, read what is there, and trim. The
    last epoch has no frame, so all frames can be deleted."""
    channel.prepare()
    previous = ""
    for epoch in range(1, 9):
        frames = [channel.put_frame(STREAM, f"{epoch:032}", 0, b"frame")] if epoch < 8 else []
        manifest = b"manifest %d" % epoch
        announce(channel, STREAM, epoch, 1)
        channel.append(STREAM, epoch, manifest, previous=previous, frames=frames)
        previous = fingerprint(manifest)
    withdraw(channel, STREAM)
    channel.put_note(Note("sender", STREAM), b"record")
    assert {*channel.notes("heads")} == {Note("head", STREAM)}
    assert channel.now() > 0
    ack_versions(channel)
    channel.trim_frames(STREAM, [channel.put_frame(STREAM, "f" * 32, 0, b"given up")])
    channel.trim(STREAM, 7, [])


def test_senders_need_what_the_page_lists(
    secured: Secured, made: KafkaChannel, caplog: pytest.LogCaptureFixture
) -> None:
    """Also to delete what all sites have acked. Fails when a sender asks for more than the page
    lists."""
    grant(secured, "limited", made.prefix, *documented("senders"))
    put_ack(made, STREAM, "seattle", b"a")
    sender = opened_by(secured, "limited", made)
    do_all_that_a_sender_does(sender)
    assert acks(sender, STREAM) == {"seattle": b"a"}
    told = [each for each in caplog.records if "spark_wan" in each.name]
    assert [each.event for each in told] == ["few-replicas"]  # type: ignore[attr-defined]
    for part in ("frames", "log"):
        assert made.broker.beginning(f"{made.prefix}.{part}", 0) > 4


@pytest.mark.parametrize(
    "missing", documented("senders"), ids=lambda missing: f"{missing[0]} {missing[1].name}"
)
def test_a_permission_that_a_sender_lacks_is_named(
    secured: Secured,
    made: KafkaChannel,
    caplog: pytest.LogCaptureFixture,
    missing: Permission,
) -> None:
    """In an error, or in a warning where only trimming needs it. Fails when a sender gets along
    without a permission of the page, or does not say what it lacks."""
    topic, operation = missing
    put_ack(made, STREAM, "seattle", b"a")
    grant(secured, "limited", made.prefix, *documented("senders"))
    deny(secured, "limited", made.prefix, missing)
    sender = opened_by(secured, "limited", made)
    only_trimming = missing in (("frames", ACLOperation.READ), *DELETE)
    with nullcontext() if only_trimming else pytest.raises(ChannelError) as error:
        do_all_that_a_sender_does(sender)
    said = caplog.text if only_trimming else str(error.value)
    assert "permission (ACL)" in said
    assert f"{made.prefix}.{topic}" in said
    assert operation.name in said


def test_b14_a_receiver_may_be_first_on_topics_that_an_administrator_made(
    secured: Secured, made: KafkaChannel
) -> None:
    """It waits, and goes on once a sender has begun. Fails when it reports a missing permission,
    which no receiver needs."""
    grant(secured, "receiver", made.prefix, *documented("receivers"))
    receiver = opened_by(secured, "receiver", made)
    for _ in range(2):
        with pytest.raises(NotBegunError, match=r"no sender has begun it yet.*Start the sender"):
            receiver.ensure_prepared()
    assert receiver.epochs() == {}
    do_all_that_a_sender_does(made)
    receiver.ensure_prepared()
    assert receiver.epochs() == {STREAM: [8]}
    put_ack(receiver, STREAM, "seattle", b"a")
    assert acks(made, STREAM) == {"seattle": b"a"}


def test_receivers_need_what_the_page_lists(secured: Secured) -> None:
    """They write acks only. Fails when a receiver writes elsewhere, or a missing permission is not
    named."""
    sender = secured.channel("SASL_SSL", "least")
    sender.prepare()
    path = sender.put_frame(STREAM, "c" * 32, 0, b"f")
    sender.append(STREAM, 1, b"m", frames=[path])
    receiver = secured.channel("SASL_SSL", "least", **{"sasl.jaas.config": login("receiver")})
    with pytest.raises(ChannelError, match=r"lacks a permission|not there"):
        receiver.notes("heads")
    write_acks = ("acks", ACLOperation.WRITE)
    grant(secured, "receiver", "least", *({*documented("receivers")} - {write_acks}))
    receiver.close()
    receiver.prepare()
    assert receiver.get_frame(path) == b"f"
    with pytest.raises(ChannelError, match=r"lacks a permission \(ACL\)"):
        put_ack(receiver, STREAM, "seattle", b"a")
    grant(secured, "receiver", "least", write_acks)
    put_ack(receiver, STREAM, "seattle", b"a")
    assert acks(sender, STREAM) == {"seattle": b"a"}
    with pytest.raises(ChannelError, match=r"lacks a permission \(ACL\)"):
        announce(receiver, STREAM, 1, 1)
