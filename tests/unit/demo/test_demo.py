"""The demo's data, and its comparison of two tables. No Spark."""

from __future__ import annotations

import ast
import inspect
import sys

import pyarrow as pa
import pytest

from spark_wan.demo import compare, flights, make_directory
from spark_wan.demo.four_sites import KILLS
from spark_wan.errors import WanError
from spark_wan.forward import forwarder
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.routes import all_streams


def test_flights_are_read_without_importing_their_package(monkeypatch):
    """The package's import needs setuptools, which new environments lack."""
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    tables = flights.read_tables(days=1)
    assert tables.keys() == flights.KEYS.keys()
    assert tables["flights"].num_rows == 842
    for name, keys in flights.KEYS.items():
        assert tables[name].group_by(list(keys)).aggregate([]).num_rows == tables[name].num_rows


def table(**columns):
    return pa.table({"id": [1, 2, 3], **columns})


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        (table(a=["x", None, "z"]), table(a=["x", None, "z"]), None),
        (table(a=["x", "y", "z"]), table(b=["x", "y", "z"]), "columns ['id', 'a'] and ['id', 'b']"),
        (table(), table().slice(1), "3 rows and 2 rows"),
        (table(a=[1, 2, 3]), table(a=[1.0, 2.0, 3.0]), "column a is int64 and double"),
        (table(a=[1, 2, 3]), table(a=[1, None, 3]), "1 rows differ\n  id=2: a: 2 and None"),
    ],
)
def test_a_difference_between_two_tables_is_described(left, right, difference):
    assert compare.find_difference(["id"], left, right) == difference


def test_all_string_types_are_equal():
    left, right = table(a=["x", "y", "z"]), table(a=pa.array(["x", "y", "z"], pa.string_view()))
    assert compare.find_difference(["id"], left, right) is None


@pytest.mark.parametrize("sites", [2, 4])
def test_the_demo_makes_a_directory_with_a_valid_topology_and_replaces_its_own(tmp_path, sites):
    directory = tmp_path / "demo"
    for _ in range(2):
        make_directory(directory, flights.KEYS, sites)
        topology = load_topology(directory / "topology.yaml")
        assert len(topology.sites) == sites
        assert {stream.origin for stream in all_streams(topology)} == {"newark"}
        assert topology.table("flights").keys == flights.KEYS["flights"]
        assert not (directory / "stale").exists()
        (directory / "stale").touch()


def test_the_demo_refuses_a_directory_that_it_did_not_make(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(WanError, match="was not made by the demo"):
        make_directory(tmp_path, flights.KEYS)
    with pytest.raises(WanError, match="is a file"):
        make_directory(tmp_path / "thesis.txt", flights.KEYS)


def test_the_demo_kills_a_site_after_steps_that_forwarding_has():
    """Fails when a step gets another name: nothing would be killed."""
    nodes = ast.walk(ast.parse(inspect.getsource(forwarder)))
    yields = [node.value for node in nodes if isinstance(node, ast.Yield)]
    steps = dict(node.value.split() for node in yields if isinstance(node, ast.Constant))
    killed_after = [steps.get(kill.step.partition(":")[0]) for kill in KILLS]
    assert killed_after == ["frames-copied", "manifest-added"]
