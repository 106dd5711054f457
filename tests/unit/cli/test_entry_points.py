"""What setup.cfg installs exists."""

from __future__ import annotations

import configparser
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_installed_command_is_a_function() -> None:
    """Fails when a module moves without its entry point: tests run ``python -m spark_wan.cli``."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    commands = setup["options.entry_points"]["console_scripts"].split("\n")
    for command in filter(None, commands):
        module, _, function = command.partition("=")[2].strip().partition(":")
        assert callable(getattr(import_module(module), function))


def test_spark_finds_the_data_source_by_the_name_of_its_module() -> None:
    """Spark imports top-level modules named pyspark_* and registers their ``DefaultSource``."""
    assert import_module("pyspark_wan").DefaultSource.name() == "wan"
