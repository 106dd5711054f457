"""Kafka brokers on loopback, each a process of its own. Their jars are downloaded once."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest
from waiting import DEADLINE, until, wait_until

from spark_wan.channels.kafka.client import KafkaBroker, KafkaChannel
from spark_wan.local.cache import cache_folder
from spark_wan.local.java import ensure_java

VERSION = "4.3.1"
SCALA = "2.13"


def java_command() -> str:
    """Return the path of Java."""
    ensure_java()
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def kafka_jars(artifact: str = f"kafka_{SCALA}:{VERSION}", transitive: bool = True) -> Path:
    """Return the folder of a jar of Kafka's with all it needs; download them with Spark's Ivy.

    ``artifact``: ``[<group>:]<name>:<version>``. ``transitive=False``: that jar alone.
    """
    group, name, version = f"org.apache.kafka:{artifact}".split(":")[-3:]
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    jars = cache / f"{name.removesuffix(f'_{SCALA}')}-{version}"
    with open(cache / "kafka.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            [ivy] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
            with tempfile.TemporaryDirectory(prefix="kafka-", dir=cache) as fresh:
                command = [java_command(), f"-Duser.home={fresh}", "-jar", str(ivy)]
                command += ["-cache", f"{fresh}/ivy", "-m2compatible", "-confs", "default"]
                command += ["-dependency", group, name, version]
                command += [] if transitive else ["-notransitive"]
                command += ["-retrieve", f"{fresh}/[artifact]-[revision].[ext]"]
                subprocess.run(command, check=True, capture_output=True, timeout=600)
                shutil.rmtree(f"{fresh}/ivy")
                os.rename(fresh, jars)
                os.mkdir(fresh)  # for its context to remove
    return jars


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in listening]
    for each in listening:
        each.close()
    return ports


@dataclass
class BrokerProcess:
    """One broker, which is also a controller."""

    node: int
    folder: Path
    ports: dict[str, int]
    """Listener -> port."""
    host: str = "127.0.0.1"
    command: Sequence[str] = ()
    """Runs a command on the machine with that address."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        return self.folder / "server.properties"

    def start(self) -> None:
        with open(self.folder / "broker.log", "ab") as log:
            self.process = subprocess.Popen(
                [*self.command, *java(self.folder, "256m"), "kafka.Kafka", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def is_listening(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "broker.log").read_text()[-3000:]
        return all(self._listens_at(port) for port in self.ports.values())

    def _listens_at(self, port: int) -> bool:
        if self.command:
            connect = f"import socket; socket.create_connection(('{self.host}', {port}), 1)"
            words = [*self.command, sys.executable, "-c", connect]
            return subprocess.run(words, capture_output=True).returncode == 0
        try:
            socket.create_connection((self.host, port), timeout=1).close()
        except OSError:
            return False
        return True

    def log_bytes(self, topic: str) -> int:
        """Return the bytes of a topic's records on disk, which are those that were sent."""
        logs = (self.folder / "data").glob(f"{topic}-[0-9]*/*.log")
        return sum(log.stat().st_size for log in logs)


@dataclass
class Cluster:
    """Brokers that know each other."""

    brokers: list[BrokerProcess] = field(default_factory=list)

    def servers(self, listener: str = "PLAINTEXT") -> str:
        return ",".join(f"{each.host}:{each.ports[listener]}" for each in self.brokers)

    @property
    def bootstrap(self) -> str:
        return self.servers()


def java(folder: Path, heap: str, *more: Path) -> list[str]:
    """Return a command that runs Java with Kafka's jars, and those in more folders."""
    quiet = folder / "log4j2.properties"
    if not quiet.exists():
        quiet.write_text(
            "appender.console.type = Console\nappender.console.name = console\n"
            "appender.console.layout.type = PatternLayout\n"
            "appender.console.layout.pattern = %d %p %m (%c)%n\n"
            "rootLogger.level = warn\nrootLogger.appenderRef.console.ref = console\n"
        )
    options = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    options += [f"-Dlog4j2.configurationFile={quiet}"]
    spark = Path(pyspark.__file__).parent / "jars"  # has what lets Kafka log
    logging = [*spark.glob("slf4j-api-*.jar"), *spark.glob("log4j-slf4j2-impl-*.jar")]
    path = ":".join([*map(str, logging), *(f"{jars}/*" for jars in (kafka_jars(), *more))])
    return [java_command(), *options, "-cp", path]


@contextmanager
def running(
    folder: Path,
    brokers: int = 1,
    listeners: Sequence[str] = ("PLAINTEXT",),
    settings: Mapping[str, str] | None = None,
    users: Mapping[str, Mapping[str, str]] | None = None,
    host: str = "127.0.0.1",
    command: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Run brokers. ``listeners``: names of security protocols; ``users``: SCRAM mechanism ->
    name -> password.

    ``command`` runs them on another machine, which has the address ``host``.
    """
    ports = free_ports(brokers * (1 + len(listeners)))
    controllers = ports[:brokers]
    of_listeners = iter(ports[brokers:])
    cluster, cluster_id = Cluster(), uuid.uuid4().hex[:22]
    for node in range(1, brokers + 1):
        place = folder / f"broker{node}"
        place.mkdir(parents=True)
        of = {listener: next(of_listeners) for listener in listeners}
        broker = BrokerProcess(node, place, of, host, command)
        cluster.brokers.append(broker)
        everywhere = [f"{name}://{host}:{port}" for name, port in of.items()]
        own = f"CONTROLLER://127.0.0.1:{controllers[node - 1]}"
        voters = [f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1)]
        replicas = str(min(brokers, 3))
        config = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*everywhere, own]),
            "advertised.listeners": ",".join(everywhere),
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in listeners)]
            ),
            "inter.broker.listener.name": listeners[0],
            "log.dirs": str(place / "data"),
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "1",
            "auto.create.topics.enable": "false",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "controller.quorum.election.timeout.ms": "1000",
            "controller.quorum.fetch.timeout.ms": "1500",
            **(settings or {}),
        }
        broker.config.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        formatting = [*java(place, "128m"), "kafka.tools.StorageTool", "format"]
        formatting += ["-t", cluster_id, "-c", str(broker.config)]
        for mechanism, logins in (users or {}).items():
            for name, password in logins.items():
                formatting += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
        done = subprocess.run(formatting, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stdout + done.stderr
    with ExitStack() as stack:
        for broker in cluster.brokers:
            stack.callback(broker.kill)
            broker.start()
        for broker in cluster.brokers:
            wait_until(broker.is_listening, "a broker listens")
        yield cluster


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker."""
    with running(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture
def closing_brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close at the end every client that a channel opened meanwhile, and wait for its threads."""
    opened: list[KafkaBroker] = []
    connect = KafkaChannel.connect

    def recorded(channel: KafkaChannel) -> KafkaBroker:
        opened.append(connect(channel))
        return opened[-1]

    monkeypatch.setattr(KafkaChannel, "connect", recorded)
    try:
        yield
    finally:
        for broker in opened:
            broker.close()
        until(lambda: not any(each.name.startswith("kafka") for each in threading.enumerate()))
