"""What a job says in its log when it starts: what it has found, and which settings are not the
defaults."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import islice

from spark_wan.messages import message_log
from spark_wan.topology.model import Sender, Site, Table
from spark_wan.topology.settings import changed_settings
from spark_wan.version import __version__

log = message_log(__name__)

MOST_NAMES = 10
"""Number of streams or settings that the text of the message lists."""
MOST_FIELDS = 100
"""Number of those that its fields list."""


def say_started(
    job: str,
    site: Site,
    streams: Collection[str],
    senders: Sequence[Sender],
    tables: Sequence[Table],
    *,
    spark: str,
    options: Mapping[str, object],
) -> None:
    """Log what a job works on, with which settings and versions.

    Args:
        job: ``sender`` or ``receiver``.
        site: Where it runs.
        streams: Names of its streams, as the topology has them.
        senders: Those whose channels it uses.
        tables: Those that it works on.
        spark: The version of Spark.
        options: What the job uses in place of settings of the site, by name.
    """
    channels = sorted({sender.channel for sender in senders})
    overridden = {
        name: str(value) for name, value in options.items() if value != getattr(site, name)
    }
    settings = {**settings_of_job(site, senders, tables), **overridden}
    versions = _versions(spark)
    changed = [f"{name}={value}" for name, value in settings.items()]
    log.info(
        "%s of site %s starts. Streams (%d): %s. Channels: %s. Settings other than the defaults: "
        "%s. Versions: %s.",
        job,
        site.name,
        len(streams),
        _some(sorted(streams)),
        ", ".join(channels),
        _some(changed),
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        event="started",
        site=site.name,
        streams=sorted(streams)[:MOST_FIELDS],
        channels=channels[:MOST_FIELDS],
        settings=dict(islice(settings.items(), MOST_FIELDS)),
        versions=versions,
    )


def settings_of_job(
    site: Site, senders: Sequence[Sender], tables: Sequence[Table]
) -> dict[str, str]:
    """Return the settings that are not the defaults, by their key path in the topology file. Of the
    options of stores only the names: their values may be secrets."""
    parts: list[tuple[str, Site | Sender | Table]] = [(f"sites.{site.name}", site)]
    parts += [(f"senders.{sender.name}", sender) for sender in senders]
    parts += [(f"tables.{table.name}", table) for table in tables]
    return {f"{path}.{name}": value for path, part in parts for name, value in _changed(part)}


def _changed(part: Site | Sender | Table) -> Iterator[tuple[str, str]]:
    yield from changed_settings(part).items()
    for field in dataclasses.fields(part):
        if "store" in field.metadata and (names := getattr(part, field.name)):
            yield field.name, f"{', '.join(sorted(names))} (values not shown)"


def _versions(spark: str) -> dict[str, str]:
    """Return what is in use. The version of Delta is not known where only its jars are
    installed."""
    try:
        delta = metadata.version("delta-spark")
    except metadata.PackageNotFoundError:
        delta = "unknown"
    python = platform.python_version()
    return {"spark_wan": __version__, "spark": spark, "delta": delta, "python": python}


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    shown = [*names[:MOST_NAMES], *([f"and {more} more"] if more > 0 else [])]
    return ", ".join(shown) or "none"
