"""spark_wan: WAN replication for the lakehouse.

Rows of Delta tables, replicated between sites over a wide-area network, with PySpark Structured Streaming:

>>> import spark_wan
>>> spark_wan.LOCAL_ONLY
'{"spark_wan": {"local_only": true}}'

``spark_wan.register(spark)`` makes ``format("wan")`` known, ``spark_wan.decode`` gives the rows of what it reads;
``spark_wan.Sender`` and ``spark_wan.Receiver`` carry tables from site to site; ``spark_wan.load_topology`` reads who sends
what to whom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# At once, so that the function and not its module of the same name is what `spark_wan.decode` means.
from spark_wan.datasource.decode import decode
from spark_wan.errors import WanError
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.wire.mark import LOCAL_ONLY

if TYPE_CHECKING:
    from spark_wan.datasource.format import register
    from spark_wan.receiver.job import Receiver
    from spark_wan.sender.job import Sender

__version__ = "0.1.0"
__all__ = [
    "LOCAL_ONLY",
    "Receiver",
    "Sender",
    "Topology",
    "WanError",
    "decode",
    "load_topology",
    "register",
]

_LAZY = {
    "Receiver": "spark_wan.receiver.job",
    "Sender": "spark_wan.sender.job",
    "register": "spark_wan.datasource.format",
}


def __getattr__(name: str) -> Any:
    # The Spark-free core must not pull pyspark in.
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'spark_wan' has no attribute {name!r}")
