# Databricks notebook source
# MAGIC %md
# MAGIC # Quick start
# MAGIC Replicates a table from one site, newark, to another one, seattle, with a channel between
# MAGIC them. Here both sites are in one workspace. The notebooks `send` and `receive` are for two.
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
# MAGIC   the first write there fails, with `Function not implemented`. Set `place`, below, to a URL
# MAGIC   in an external location, such as `s3://bucket/wan`; the cluster needs credentials for it.

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
import shutil
import uuid

import spark_wan

folder = pathlib.Path(dbutils.widgets.get("folder"))
volume = folder.parts.index("Volumes")
catalog, schema = folder.parts[volume + 1 : volume + 3]

run = uuid.uuid4().hex[:8]  # each run has its own tables and folder
newark = f"{catalog}.{schema}.orders_newark_{run}"
seattle = f"{catalog}.{schema}.orders_seattle_{run}"
run_folder = folder / f"quickstart_{run}"
place = str(run_folder)  # of the channel and the states: a folder, or a URL

# COMMAND ----------

# MAGIC %md
# MAGIC ## The topology: which site sends which table where
# MAGIC All sites have the same file.

# COMMAND ----------

run_folder.mkdir(parents=True)
(run_folder / "topology.yaml").write_text(f"""
version: 1
sites:
  newark:
    state: {place}/newark
  seattle:
    state: {place}/seattle
senders:
  east:
    site: newark
    remotes: [seattle]
    channel: {place}/channel
tables:
  orders:
    keys: [id]
    writers: [newark]
    senders: [east]
    at:
      newark: {newark}
      seattle: {seattle}
""")
topology = spark_wan.load_topology(run_folder / "topology.yaml")

# COMMAND ----------

# MAGIC %md
# MAGIC ## A table with a change feed
# MAGIC Only newark has the table yet. The receiver creates it at seattle.

# COMMAND ----------

spark.sql(
    f"CREATE TABLE {newark} (id BIGINT, item STRING) USING DELTA "
    "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
)
spark.sql(f"INSERT INTO {newark} VALUES (1, 'pear'), (2, 'plum'), (3, 'fig')")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Send and receive
# MAGIC `available_now=True` processes the available data, then exits. Without it, sender and
# MAGIC receiver run until `stop()`.

# COMMAND ----------

spark_wan.Sender(spark, topology, "newark").start(available_now=True).await_termination()
spark_wan.Receiver(spark, topology, "seattle").start(available_now=True).await_termination()
display(spark.sql(f"SELECT * FROM {seattle} ORDER BY id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Changes follow

# COMMAND ----------

spark.sql(f"UPDATE {newark} SET item = 'quince' WHERE id = 2")
spark.sql(f"DELETE FROM {newark} WHERE id = 3")

sender = spark_wan.Sender(spark, topology, "newark").start(available_now=True)
sender.await_termination()
receiver = spark_wan.Receiver(spark, topology, "seattle").start(available_now=True)
receiver.await_termination()
display(spark.sql(f"SELECT * FROM {seattle} ORDER BY id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What they did since their start
# MAGIC A stream is one table of one sender. `held` is why it has stopped, if it has.

# COMMAND ----------

for sent in sender.status():
    print(f"{sent.stream}: {sent.events} events sent; held: {sent.held}")
for received in receiver.status():
    print(f"{received.stream}: {received.events} events received; held: {received.held}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Delete the tables and files of this run

# COMMAND ----------

spark.sql(f"DROP TABLE {newark}")
spark.sql(f"DROP TABLE {seattle}")
shutil.rmtree(run_folder)
