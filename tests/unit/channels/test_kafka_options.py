"""Options of a Kafka channel: Kafka's own names, or an error that names the nearest one."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority

from spark_wan.channels import registry
from spark_wan.channels.kafka.client import KafkaBroker
from spark_wan.channels.kafka.options import parse_options
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError
from spark_wan.topology.values import parse_channel

URL = "kafka://b1:9092,b2:9092/wan"
SCRAM = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    r'username="u\"1" password="p\\w";'
)
SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": SCRAM,
}


def test_options_have_the_names_of_kafka() -> None:
    options = parse_options(
        URL,
        {
            **SASL,
            "kafka.request.timeout.ms": "5000",
            "kafka.delivery.timeout.ms": "9000",
            "kafka.ssl.endpoint.identification.algorithm": "",
            "topics.partitions": "12",
            "topics.replication": "2",
        },
    )
    assert (options.servers, options.prefix) == (("b1:9092", "b2:9092"), "wan")
    assert (options.partitions, options.replication) == (12, 2)
    assert dict(options.client) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": 'u"1',
        "sasl_plain_password": r"p\w",
        "request_timeout_ms": 5_000,
        "ssl_check_hostname": False,
    }
    assert dict(options.producer) == {"delivery_timeout_ms": 9_000}
    assert r"p\w" not in repr(options)
    assert r"p\\w" not in repr(options)


def test_brokers_may_be_an_option() -> None:
    """As for Spark's Kafka source, with a URL that has the prefix alone."""
    options = parse_options("kafka:///wan", {"kafka.bootstrap.servers": "b1:9092, [::1]:9093"})
    assert options.servers == ("b1:9092", "[::1]:9093")
    assert parse_options(URL, {"kafka.bootstrap.servers": "b1:9092,b2:9092"}).servers


@pytest.mark.parametrize(
    ("url", "storage", "named"),
    [
        ("kafka:///wan", {}, "names no broker"),
        ("kafka://,/wan", {}, "names no broker"),
        ("kafka:///wan", {"kafka.bootstrap.servers": " , "}, "names no broker"),
        ("kafka://b1:9092", {}, "the URL is kafka://<host>:<port>"),
        ("kafka://b1:9092/", {}, "the URL is kafka://"),
        ("kafka://b1:9092/a/b", {}, "the URL is kafka://"),
        ("kafka://b1:9092/a b", {}, "the URL is kafka://"),
        ("kafka://b1:9092/" + "x" * 243, {}, "longer than 242"),
        ("kafka://b1/wan", {}, "'b1' is no broker; write <host>:<port>"),
        ("kafka://b1:99999/wan", {}, "is no broker"),
        (URL, {"kafka.bootstrap.servers": "b3:9092"}, "name different brokers"),
        (URL, {"kafka.security.protocl": "SSL"}, "kafka.security.protocol"),
        (URL, {"security.protocol": "SSL"}, "write kafka.security.protocol"),
        (URL, {"region": "us"}, "unknown option 'region'"),
        (URL, {"kafka.security.protocol": "TLS"}, "none of PLAINTEXT, SSL"),
        (URL, {"kafka.acks": "1"}, "spark_wan sets it"),
        (URL, {"kafka.group.id": "g"}, "spark_wan sets it"),
        (URL, {"kafka.ssl.truststore.password": "x"}, "PEM file has no password"),
        (URL, {"kafka.sasl.kerberos.service.name": "k"}, "Kerberos is not supported"),
        (URL, {"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms: must be a whole"),
        (URL, {"kafka.request.timeout.ms": "0"}, "must be 1 or more"),
        (URL, {"kafka.delivery.timeout.ms": "29999"}, "no write could be tried"),
        (URL, {"topics.partitions": "none"}, "topics.partitions: must be a whole number"),
        (URL, {**SASL, "kafka.sasl.mechanism": "GSSAPI"}, "none of PLAIN, SCRAM"),
        (URL, {**SASL, "kafka.sasl.jaas.config": "x y"}, "ScramLoginModule required"),
        (URL, {**SASL, "kafka.security.protocol": "SSL"}, "but kafka.sasl.jaas.config is set"),
        (URL, {"kafka.security.protocol": "SASL_SSL"}, "set kafka.sasl.jaas.config"),
        (URL, {k: v for k, v in SASL.items() if "mechanism" not in k}, "set kafka.sasl.mechanism"),
        (URL, {"kafka.ssl.truststore.type": "JKS"}, "convert it to PEM"),
        (URL, {"kafka.ssl.truststore.location": "/nowhere"}, "/nowhere cannot be read"),
        (URL, {"kafka.ssl.truststore.location": __file__}, "security.protocol is PLAINTEXT"),
        (URL, {"kafka.client.id": "${env:WAN_NOT_SET}"}, "WAN_NOT_SET is not set"),
        (URL, {"kafka.client.id": "${file:/nowhere}"}, "/nowhere cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    url: str, storage: dict[str, str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAN_NOT_SET", raising=False)
    if "kafka.ssl.truststore.location" in storage:
        pem = tmp_path / "a.pem"
        pem.write_text("-----BEGIN CERTIFICATE-----")
        storage = {name: str(pem) if text == __file__ else text for name, text in storage.items()}
    with pytest.raises(ChannelError) as error:
        parse_options(url, storage)
    assert named in str(error.value)
    assert str(error.value).endswith("See docs/kafka.md.")


def test_a_java_key_store_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    ssl = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": str(store)}
    with pytest.raises(ChannelError, match=r"is not PEM\. Convert .* keytool"):
        parse_options(URL, ssl)


@pytest.mark.parametrize("password", [None, "wr0ng"])
def test_a_key_that_cannot_be_opened_is_refused(tmp_path: Path, password: str | None) -> None:
    """Fails when OpenSSL asks for the password at the terminal of a job."""
    authority = Authority(tmp_path)
    key = authority.issue("client", password="r1ght")
    storage = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(authority.file),
        "kafka.ssl.keystore.location": str(key),
    }
    if password is not None:
        storage["kafka.ssl.key.password"] = password
    with pytest.raises(ChannelError, match=r"kafka\.ssl\.key\.password") as error:
        KafkaBroker(parse_options(URL, storage))
    assert "wr0ng" not in str(error.value)


def test_certificates_may_be_texts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    lines = authority.issue("client").read_text()
    key, _, chain = lines.partition("-----BEGIN CERTIFICATE")
    storage = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.certificates": authority.file.read_text(),
        "kafka.ssl.keystore.key": key,
        "kafka.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE" + chain,
    }
    broker = KafkaBroker(parse_options(URL, storage))
    assert len(broker._client["ssl_context"].get_ca_certs()) == 1
    broker.close()
    del storage["kafka.ssl.keystore.key"]
    with pytest.raises(ChannelError, match="go together"):
        parse_options(URL, storage)


def test_a_topology_may_name_a_kafka_channel() -> None:
    assert parse_channel(URL, "/base") == URL


def test_kafka_python_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'kafka'", name="kafka")

    monkeypatch.setattr(registry, "resolve_name", missing)
    with pytest.raises(ChannelError, match=r"pip install 'kafka-python[<>=.,\d]*' here"):
        open_channel(f"{URL}-missing")


@pytest.mark.parametrize("level", [logging.NOTSET, logging.WARNING])
def test_the_log_of_kafka_python_is_shown_on_request(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """It has several lines a second while brokers are away. Causes are kept in any case."""
    logger = logging.getLogger("kafka")
    monkeypatch.setattr(logger, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logger, "level", level)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    broker = KafkaBroker(parse_options(URL, {}))
    assert logger.propagate == (level != logging.NOTSET)
    monkeypatch.setattr(threading.current_thread(), "_name", f"kafka-io-{broker._name}")
    logging.getLogger("kafka.net.manager").error("Connection failed: %s", "111 ECONNREFUSED")
    logging.getLogger("kafka.net.manager").error("Bootstrap b not ready; waiting 1.0 secs")
    assert broker._said.recent() == ["111 ECONNREFUSED"]
    broker.close()
    logger.manager._clear_cache()  # type: ignore[attr-defined]


def test_timeouts_that_are_not_known_here_are_not_compared() -> None:
    """``validate`` reads no environment variable of another machine."""
    storage = {
        "kafka.request.timeout.ms": "${env:WAN_NOT_SET}",
        "kafka.delivery.timeout.ms": "9000",
    }
    assert parse_options(URL, storage, resolve=False).producer
