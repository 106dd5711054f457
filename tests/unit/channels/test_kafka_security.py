"""TLS, logins and permissions of the Kafka channel, with real brokers. Each thing that can be wrong
is an error that names what to change. No message, log, ``repr`` or pickle shows a secret."""

from __future__ import annotations

import datetime
import logging
import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from certificates import DAY, Authority
from fakes import STREAM
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka_server import Cluster, running

from spark_wan.channels.kafka.client import KafkaChannel
from spark_wan.errors import ChannelError

PASSWORD = "corr3ct-h0rse"
KEY_PASSWORD = "battery-stapl3"
USERS = {
    "SCRAM-SHA-256": dict.fromkeys(("sender", "receiver"), PASSWORD),
    "SCRAM-SHA-512": {"sender-512": PASSWORD},
}
"""Mechanism -> name -> password. No user has logins of both."""
pytestmark = pytest.mark.usefixtures("closing_brokers")


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
    channel.append(STREAM, 1, b"m", "", [path])
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
        ("SASL_SSL", {"sasl.jaas.config": login("sender", "wr0ng-secret")}, "user name, password"),
        ("SASL_SSL", {"sasl.jaas.config": login("nobody", "wr0ng-secret")}, "user name, password"),
        (
            "SASL_SSL",
            {**SHA_512, "sasl.jaas.config": login("sender-512", "wr0ng-secret")},
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
    assert "wr0ng-secret" not in message
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


def test_receivers_need_to_write_acks_only(secured: Secured) -> None:
    """The least permissions. Fails when a receiver writes elsewhere, or a missing permission is not
    named."""
    sender = secured.channel("SASL_SSL", "least")
    sender.prepare()
    path = sender.put_frame(STREAM, "c" * 32, 0, b"f")
    sender.append(STREAM, 1, b"m", "", [path])
    receiver = secured.channel("SASL_SSL", "least", **{"sasl.jaas.config": login("receiver")})
    with pytest.raises(ChannelError, match=r"lacks a permission|not there"):
        receiver.heads()
    grant(secured, "least.frames", ACLOperation.READ)
    grant(secured, "least.log", ACLOperation.READ)
    grant(secured, "least.acks", ACLOperation.READ)
    receiver.close()
    receiver.prepare()
    assert receiver.get_frame(path) == b"f"
    with pytest.raises(ChannelError, match=r"lacks a permission \(ACL\)"):
        receiver.put_ack(STREAM, "seattle", b"a")
    grant(secured, "least.acks", ACLOperation.WRITE)
    receiver.put_ack(STREAM, "seattle", b"a")
    assert sender.acks(STREAM) == {"seattle": b"a"}
    with pytest.raises(ChannelError, match=r"lacks a permission \(ACL\)"):
        receiver.announce(STREAM, 1, 1)


def grant(secured: Secured, topic: str, operation: ACLOperation) -> None:
    client = KafkaAdminClient(bootstrap_servers=secured.cluster.bootstrap)
    client.create_acls(
        [
            ACL(
                principal="User:receiver",
                host="*",
                operation=operation,
                permission_type=ACLPermissionType.ALLOW,
                resource_pattern=ResourcePattern(ResourceType.TOPIC, topic),
            )
        ]
    )
    client.close()
