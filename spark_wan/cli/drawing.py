"""``topology``: draws where rows go. It needs no Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from spark_wan.cli.options import Config, Format, OutputFormat
from spark_wan.cli.output import reporting_errors
from spark_wan.cli.status import load_valid
from spark_wan.drawing.graph import graph_of
from spark_wan.drawing.svg import draw_svg
from spark_wan.errors import OptionError

STANDARD_OUTPUT = Path("-")


def topology(
    config: Config,
    table: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Draw only this table.")
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a picture to this SVG file; - is standard output."
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Draw the topology, as text or as a picture. Needs no Spark."""
    if svg == STANDARD_OUTPUT and output is Format.JSON:
        raise typer.BadParameter(
            "- is the picture alone; name a file, or leave out --output json", param_hint="'--svg'"
        )
    with reporting_errors(output) as out:
        read = load_valid(config, out)
        graph = graph_of(read, table)
        if svg is None:
            out.graph(read.file, graph)
            return
        picture = draw_svg(graph, f"{table} in {config.name}" if table else config.name)
        if svg == STANDARD_OUTPUT:
            sys.stdout.write(picture)
            return
        try:
            svg.write_text(picture, encoding="utf-8")
        except OSError as error:
            problem = error.strerror or error
            raise OptionError(
                f"--svg {svg}: cannot be written ({problem}); name a file that you may write"
            ) from None
        out.picture(svg)
