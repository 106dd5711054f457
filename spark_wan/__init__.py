"""spark_wan: WAN replication for the lakehouse.

Replicates rows of Delta tables between sites with PySpark Structured Streaming:

>>> import spark_wan
>>> spark_wan.LOCAL_ONLY
'{"spark_wan": {"local_only": true}}'

``register(spark)`` adds ``format("wan")``, and ``decode`` returns the rows of what it reads.
``Sender`` and ``Receiver`` carry tables from site to site; ``load_topology`` reads who sends what
to whom. ``wait_for_ack`` makes a commit permanent before its writer goes on, and ``local_only``
keeps commits at their site. ``synchronized`` returns a table of a site once the site has a whole
state of it. ``read_status`` returns how far every stream is at every site, ``check`` what is wrong,
``dead_letters`` what a site could not apply or send; all three without Spark. ``verify`` compares a
table with its copies, and ``undo`` takes back what some commits did. ``make_backup`` and
``adopt_backup`` carry a table by hand. ``pause`` and ``resume`` say when the sites take what
another one sends, ``drain`` and ``stop_at`` where that ends, and ``clean`` drops what waits.
``decide``, ``withdraw`` and ``decisions`` answer what holds a stream. ``preflight`` checks links
before their jobs start. ``configure_logging`` has all of them log, as text or as lines of JSON.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not lazily: `spark_wan.decode` must be the function, not the module of that name.
from spark_wan.datasource.decode import decode
from spark_wan.errors import AckTimeoutError, JoinFailureError, LockoutError, WanError
from spark_wan.messages import configure_logging
from spark_wan.status.wait import wait_for_ack
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.version import __version__ as __version__
from spark_wan.wire.mark import LOCAL_ONLY

if TYPE_CHECKING:
    from spark_wan.backup.job import adopt_backup, make_backup
    from spark_wan.control.decide import decide, decisions, withdraw
    from spark_wan.control.verbs import clean, drain, pause, resume, stop_at
    from spark_wan.datasource.format import register
    from spark_wan.datasource.synchronized import synchronized
    from spark_wan.delta.local_only import local_only
    from spark_wan.ledger.dead_letters import dead_letters
    from spark_wan.receiver.job import Receiver
    from spark_wan.rehearsal.job import preflight
    from spark_wan.sender.job import Sender
    from spark_wan.status.check import check
    from spark_wan.status.reports import read_status
    from spark_wan.status.watch import watch
    from spark_wan.sync.inverse import undo
    from spark_wan.sync.verify import verify

__all__ = [
    "LOCAL_ONLY",
    "AckTimeoutError",
    "JoinFailureError",
    "LockoutError",
    "Receiver",
    "Sender",
    "Topology",
    "WanError",
    "adopt_backup",
    "check",
    "clean",
    "configure_logging",
    "dead_letters",
    "decide",
    "decisions",
    "decode",
    "drain",
    "load_topology",
    "local_only",
    "make_backup",
    "pause",
    "preflight",
    "read_status",
    "register",
    "resume",
    "stop_at",
    "synchronized",
    "undo",
    "verify",
    "wait_for_ack",
    "watch",
    "withdraw",
]

_LAZY = {
    "Receiver": "spark_wan.receiver.job",
    "Sender": "spark_wan.sender.job",
    "adopt_backup": "spark_wan.backup.job",
    "check": "spark_wan.status.check",
    "dead_letters": "spark_wan.ledger.dead_letters",
    "decide": "spark_wan.control.decide",
    "decisions": "spark_wan.control.decide",
    "clean": "spark_wan.control.verbs",
    "drain": "spark_wan.control.verbs",
    "local_only": "spark_wan.delta.local_only",
    "make_backup": "spark_wan.backup.job",
    "pause": "spark_wan.control.verbs",
    "preflight": "spark_wan.rehearsal.job",
    "read_status": "spark_wan.status.reports",
    "register": "spark_wan.datasource.format",
    "resume": "spark_wan.control.verbs",
    "stop_at": "spark_wan.control.verbs",
    "synchronized": "spark_wan.datasource.synchronized",
    "undo": "spark_wan.sync.inverse",
    "verify": "spark_wan.sync.verify",
    "watch": "spark_wan.status.watch",
    "withdraw": "spark_wan.control.decide",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:  # so that importing the core imports no pyspark, and is quick
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'spark_wan' has no attribute {name!r}")
