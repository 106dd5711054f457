# Databricks notebook source
# MAGIC %md
# MAGIC # Receive
# MAGIC The receiving site, seattle. It applies to its own table what the sender wrote to the
# MAGIC channel, and acks it. Run the notebook `send` first, with the same folder.
# MAGIC
# MAGIC **You need**
# MAGIC
# MAGIC - a cluster with Databricks Runtime 19 (Spark 4.2), in *dedicated* access mode;
# MAGIC - a Unity Catalog volume with the wheel in it. `make wheel` builds
# MAGIC   `dist/spark_wan-0.1.0-py3-none-any.whl`; upload that;
# MAGIC - the privileges `USE CATALOG`, `USE SCHEMA`, `READ VOLUME`, `WRITE VOLUME` and
# MAGIC   `CREATE TABLE`: the tables are in the schema of the volume.
# MAGIC
# MAGIC **Not tried on Databricks.** Tests run this notebook with Spark 4.2 and Delta 4.4 in a local
# MAGIC session. By the documentation of Databricks, and by what others report:
# MAGIC
# MAGIC - *Serverless* compute is not enough. Few Spark settings can be set there, and `persist` is
# MAGIC   an error. A receiver sets the mark of its commit by a Spark setting, and persists rows if
# MAGIC   the table has constraints or the stream has event IDs. Streams need `availableNow` there.
# MAGIC - In *standard* access mode (formerly shared), a session is a Spark Connect session, without
# MAGIC   `SparkContext`, RDDs and JVM. spark_wan needs none of these, and is tested with Spark
# MAGIC   Connect, but not with the other restrictions of this mode.
# MAGIC - A volume may refuse to rename and to link files, which a channel and a state need. Then
# MAGIC   the first write there fails, with `Function not implemented`. Set `place`, in the notebook
# MAGIC   `send`, to a URL.

# COMMAND ----------

# MAGIC %md
# MAGIC ## Install
# MAGIC `folder` is a volume, or a folder in one. All other names follow from it.

# COMMAND ----------

dbutils.widgets.text("folder", "/Volumes/main/wan/files")
wheel = dbutils.widgets.get("folder") + "/spark_wan-0.1.0-py3-none-any.whl"

# COMMAND ----------

# MAGIC %pip install $wheel

# COMMAND ----------

dbutils.library.restartPython()

# COMMAND ----------

import pathlib

import spark_wan

folder = pathlib.Path(dbutils.widgets.get("folder"))
topology = spark_wan.load_topology(folder / "orders.yaml")  # the one that the sender has

# COMMAND ----------

# MAGIC %md
# MAGIC ## Apply what has arrived
# MAGIC The receiver creates the table if there is none. Without `available_now=True` it runs until
# MAGIC `stop()`. It can be started on another cluster: its progress is in the table and in the
# MAGIC site's ledger.

# COMMAND ----------

receiver = spark_wan.Receiver(spark, topology, "seattle").start(available_now=True)
receiver.await_termination()
for received in receiver.status():
    print(f"{received.stream}: {received.events} events received; held: {received.held}")

# COMMAND ----------

orders = topology.tables["orders"].at["seattle"]
display(spark.sql(f"SELECT * FROM {orders} ORDER BY id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## How the rows came here
# MAGIC Each commit of a receiver carries a mark in the table's history. It says what was applied,
# MAGIC so that no event takes effect twice.

# COMMAND ----------

history = spark.sql(f"DESCRIBE HISTORY {orders}")
display(history.select("version", "operation", "userMetadata"))
