# Databricks notebook source
# MAGIC %md
# MAGIC # Status and dead letters
# MAGIC Shows what becomes of a row that the target refuses, how to repair it, and how far behind
# MAGIC each site is.
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
newark = f"{catalog}.{schema}.payments_newark_{run}"
seattle = f"{catalog}.{schema}.payments_seattle_{run}"
run_folder = folder / f"payments_{run}"
place = str(run_folder)  # of the channel and the states: a folder, or a URL

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
  payments:
    keys: [id]
    writers: [newark]
    senders: [east]
    at:
      newark: {newark}
      seattle: {seattle}
""")
topology = spark_wan.load_topology(run_folder / "topology.yaml")


def replicate():
    """Send, then receive."""
    spark_wan.Sender(spark, topology, "newark").start(available_now=True).await_termination()
    spark_wan.Receiver(spark, topology, "seattle").start(available_now=True).await_termination()


# COMMAND ----------

# MAGIC %md
# MAGIC ## A row that the target refuses
# MAGIC Seattle's table has a constraint of its own. The row that breaks it becomes a dead letter,
# MAGIC with its cause; the others arrive.

# COMMAND ----------

for table in (newark, seattle):
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, amount DOUBLE) USING DELTA "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
spark.sql(f"ALTER TABLE {seattle} ADD CONSTRAINT positive CHECK (amount > 0)")
spark.sql(f"INSERT INTO {newark} VALUES (1, 10.0), (2, -5.0), (3, 30.0)")
replicate()
display(spark.sql(f"SELECT * FROM {seattle} ORDER BY id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Dead letters
# MAGIC The site's ledger has the whole row, the cause, and the stream of the event. A letter is
# MAGIC final once its `token` is in `applied`, or begins with `marked`.
# MAGIC `spark_wan.dead_letters(topology, "seattle")` returns the same letters without Spark.

# COMMAND ----------

ledger = topology.sites["seattle"].state + "/ledger"
applied = spark.read.format("delta").load(f"{ledger}/applied").select("token")
letters = spark.read.format("delta").load(f"{ledger}/dead_letters").where("side = 'receiver'")
final = letters.join(applied, "token", "left_semi").unionByName(
    letters.where("token LIKE 'marked%'")
)
display(final.select("table", "stream", "operation", "row", "cause"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The remedy
# MAGIC Correct the row where it was written. The change is replicated like any other.

# COMMAND ----------

spark.sql(f"UPDATE {newark} SET amount = 5.0 WHERE id = 2")
replicate()
display(spark.sql(f"SELECT * FROM {seattle} ORDER BY id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## How far behind each site is
# MAGIC `spark-wan status` prints the same in a terminal, without Spark.

# COMMAND ----------

reports = spark_wan.read_status(topology)
for channel in reports:
    for stream in channel.streams:
        for site in stream.sites:
            print(f"{stream.stream}: {site.site} has applied {site.acked} of {stream.epoch} epochs")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Delete the tables and files of this run

# COMMAND ----------

spark.sql(f"DROP TABLE {newark}")
spark.sql(f"DROP TABLE {seattle}")
shutil.rmtree(run_folder)
