"""``spark-wan topology``: text, JSON and SVG."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from spark_wan.cli.app import main

ROOT = Path(__file__).parents[3]
FOUR = "conf/four_sites.yaml"

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``spark-wan topology`` with these words in the repository; return the exit code."""
    monkeypatch.chdir(ROOT)

    def run(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["spark-wan", "topology", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0)

    return run


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())


def test_tables_are_trees_from_their_writer_and_links_a_list(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables that go the same ways share a tree."""
    assert run("-c", FOUR) == 0
    assert printed(capsys) == (
        "orders, readings, written at newark\n"
        "└── east -> chicago\n"
        "    ├── west -> denver\n"
        "    └── west -> seattle\n"
        "\n"
        "stock, written at seattle\n"
        "└── up -> chicago\n"
        "    ├── back -> denver\n"
        "    └── back -> newark\n"
        "\n"
        "link                sender  tables\n"
        "newark -> chicago   east    orders, readings\n"
        "chicago -> denver   west    orders, readings\n"
        "chicago -> seattle  west    orders, readings\n"
        "seattle -> chicago  up      stock\n"
        "chicago -> newark   back    stock\n"
        "chicago -> denver   back    stock"
    )


def test_one_table_has_its_links_only(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-c", FOUR, "--table", "readings") == 0
    assert printed(capsys) == (
        "readings, written at newark\n"
        "└── east -> chicago\n"
        "    ├── west -> denver\n"
        "    └── west -> seattle\n"
        "\n"
        "link                sender  tables\n"
        "newark -> chicago   east    readings\n"
        "chicago -> denver   west    readings\n"
        "chicago -> seattle  west    readings"
    )


def test_a_site_with_two_ways_drops_duplicates(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("-c", "conf/topologies/two_ways.yaml") == 0
    assert printed(capsys).startswith(
        "orders, written at newark\n"
        "├── east -> chicago\n"
        "│   └── north -> seattle  (gets it by 2 ways, drops duplicates)\n"
        "└── east -> denver\n"
        "    └── south -> seattle  (gets it by 2 ways, drops duplicates)\n"
    )


def test_links_without_tables_and_sinks_say_so(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    content = yaml.safe_load((ROOT / "conf/topologies/pair.yaml").read_text())
    del content["tables"]["stock"], content["tables"]["orders"]["at"]["newark"]
    content["tables"]["orders"]["source"] = "sink"
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(content))
    assert run("-c", tmp_path / "wan.yaml") == 0
    assert printed(capsys) == (
        "orders, written at newark by a sink\n"
        "└── east -> seattle\n"
        "\n"
        "link               sender  tables\n"
        "newark -> seattle  east    orders\n"
        "seattle -> newark  west    none"
    )


def test_long_lists_of_tables_are_cut(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    content: dict[str, Any] = yaml.safe_load((ROOT / "conf/topologies/pair.yaml").read_text())
    orders = content["tables"]["orders"]
    content["tables"] = {
        f"t{number}": {**orders, "at": {site: f"./{site}/{number}" for site in orders["at"]}}
        for number in range(11)
    }
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert run("-c", tmp_path / "wan.yaml") == 0
    assert printed(capsys).count("t0, t1, t2, t3, t4, t5, t6, t7, t8, and 2 more") == 2


def test_json_has_nodes_edges_and_links(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The keys are an interface."""
    assert run("-c", "conf/topologies/two_ways.yaml", "--output", "json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["file"] == "conf/topologies/two_ways.yaml"
    assert answer["nodes"] == [
        {"site": "newark", "writes": ["orders"], "drops_duplicates_of": []},
        {"site": "chicago", "writes": [], "drops_duplicates_of": []},
        {"site": "denver", "writes": [], "drops_duplicates_of": []},
        {"site": "seattle", "writes": [], "drops_duplicates_of": ["orders"]},
    ]
    assert [edge["way"] for edge in answer["edges"]] == [
        "newark -> east -> chicago",
        "newark -> east -> denver",
        "newark -> east -> chicago -> north -> seattle",
        "newark -> east -> denver -> south -> seattle",
    ]
    assert answer["edges"][2] == {
        "table": "orders",
        "from": "chicago",
        "to": "seattle",
        "sender": "north",
        "stream": "chicago.north~newark.east.orders",
        "forwards": "newark.east.orders",
        "way": "newark -> east -> chicago -> north -> seattle",
    }
    assert answer["links"][3] == {
        "from": "denver",
        "to": "seattle",
        "sender": "south",
        "tables": ["orders"],
    }


def test_a_picture_goes_to_a_file_or_to_standard_output(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "four.svg"
    assert run("-c", FOUR, "--svg", file) == 0
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert run("-c", FOUR, "--svg", "-") == 0
    assert capsys.readouterr().out == file.read_text()
    assert run("-c", FOUR, "--svg", file, "--table", "stock", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "svg": str(file)}
    svg = ElementTree.parse(file).getroot()
    assert svg.findtext("{*}title") == "stock in four_sites.yaml"


def test_a_picture_that_cannot_be_written_is_an_error(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("-c", FOUR, "--svg", tmp_path / "none" / "x.svg") == 1
    assert capsys.readouterr().err == (
        f"spark-wan: --svg {tmp_path}/none/x.svg: cannot be written (No such file or directory); "
        "name a file that you may write\n"
    )


def test_b75_json_and_a_picture_do_not_share_standard_output(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("-c", FOUR, "--svg", "-", "-o", "json") == 2
    assert "Invalid value for '--svg': - is the picture alone" in capsys.readouterr().err


def test_b74_an_unknown_table_is_refused_with_the_nearest(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("-c", FOUR, "--table", "stok") == 1
    error = f"spark-wan: {FOUR}: table 'stok' is unknown; did you mean 'stock'?\n"
    assert capsys.readouterr().err == error


@pytest.mark.parametrize("format", ["text", "json"])
def test_b74_an_invalid_file_has_its_problems_printed_as_by_validate(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    format: str,
) -> None:
    file = tmp_path / "wan.yaml"
    file.write_text((ROOT / FOUR).read_text().replace("[up, back]", "[up, back, west, wst]"))
    assert run("-c", file, "-o", format, "--svg", tmp_path / "x.svg") == 1
    drawn = capsys.readouterr()
    assert not (tmp_path / "x.svg").exists()
    monkeypatch.setattr(sys, "argv", ["spark-wan", "validate", "-c", str(file), "-o", format])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr() == drawn
    assert "wst" in drawn.out and drawn.err == ""
