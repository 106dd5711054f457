# Databricks notebook source
# MAGIC %md
# MAGIC # spark_wan in one notebook
# MAGIC Two sites, one table, a directory as the channel. On a cluster, install the package as a
# MAGIC library; elsewhere any session with Delta works.

# COMMAND ----------

import pathlib
import tempfile

import spark_wan
from spark_wan.topology.parsing import parse_topology

# On a cluster: a volume or cloud storage that both sites can reach.
folder = pathlib.Path(tempfile.mkdtemp(prefix="spark-wan-"))
newark, seattle = f"{folder}/newark/orders", f"{folder}/seattle/orders"

# COMMAND ----------

# MAGIC %md
# MAGIC ## The topology: which site sends which table where
# MAGIC Usually a YAML file (`spark_wan.load_topology`); here, the same as a dictionary.

# COMMAND ----------

topology = parse_topology(
    {
        "version": 1,
        "sites": {
            "newark": {"state": f"{folder}/newark/_wan"},
            "seattle": {"state": f"{folder}/seattle/_wan"},
        },
        "senders": {
            "east": {"site": "newark", "remotes": ["seattle"], "channel": f"{folder}/channel"}
        },
        "tables": {
            "orders": {
                "keys": ["id"],
                "writers": ["newark"],
                "senders": ["east"],
                "at": {"newark": newark, "seattle": seattle},
            },
        },
    },
    "quickstart",
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A table with a change feed

# COMMAND ----------

spark.sql(
    f"CREATE TABLE delta.`{newark}` (id BIGINT, item STRING) USING DELTA "
    "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
)
spark.sql(f"INSERT INTO delta.`{newark}` VALUES (1, 'pear'), (2, 'plum'), (3, 'fig')")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Send and receive
# MAGIC `available_now=True` processes the available data, then exits; without it, sender and
# MAGIC receiver run until `stop()`.

# COMMAND ----------

spark_wan.Sender(spark, topology, "newark").start(available_now=True).await_termination()
spark_wan.Receiver(spark, topology, "seattle").start(available_now=True).await_termination()
spark.read.format("delta").load(seattle).orderBy("id").show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Changes follow

# COMMAND ----------

spark.sql(f"UPDATE delta.`{newark}` SET item = 'quince' WHERE id = 2")
spark.sql(f"DELETE FROM delta.`{newark}` WHERE id = 3")

sender = spark_wan.Sender(spark, topology, "newark").start(available_now=True)
sender.await_termination()
receiver = spark_wan.Receiver(spark, topology, "seattle").start(available_now=True)
receiver.await_termination()
print(sender.status())
print(receiver.status())
replicated = spark.read.format("delta").load(seattle).orderBy("id").collect()
