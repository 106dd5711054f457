# Databricks notebook source
# MAGIC %md
# MAGIC # User streams
# MAGIC The sink `format("wan")` sends the rows of any DataFrame or stream as events. A column
# MAGIC identifies each event permanently, so an event that is sent again takes effect once.
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

import spark_wan

folder = pathlib.Path(dbutils.widgets.get("folder"))
volume = folder.parts.index("Volumes")
catalog, schema = folder.parts[volume + 1 : volume + 3]
place = f"{folder}/clicks"  # of the channel and the states: a folder, or a URL

config = folder / "clicks.yaml"
config.write_text(f"""
version: 1
sites:
  newark:
    state: {place}/newark
  seattle:
    state: {place}/seattle
senders:
  web:
    site: newark
    remotes: [seattle]
    channel: {place}/channel
tables:
  clicks:
    source: sink
    keys: []
    writers: [newark]
    senders: [web]
    at:
      seattle: {catalog}.{schema}.clicks_seattle
""")
spark_wan.register(spark)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A stream of clicks
# MAGIC Any streaming source will do. Here it is a Delta table. All clicks are sent twice.

# COMMAND ----------

source = f"{catalog}.{schema}.clicks_newark"
spark.sql(
    "SELECT concat('c', id) AS click, id % 3 AS visitor, concat('/page/', id % 4) AS page "
    "FROM range(10)"
).write.mode("overwrite").saveAsTable(source)

clicks = spark.readStream.option("ignoreChanges", "true").table(source)


def send(checkpoint):
    """Send all clicks. A new checkpoint sends them again."""
    query = (
        clicks.writeStream.format("wan")
        .option("config", str(config))
        .option("sender", "web")
        .option("table", "clicks")
        .option("eventId", "click")
        .option("checkpointLocation", f"{folder}/clicks/checkpoints/{checkpoint}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


send("first")
send("second")

# COMMAND ----------

# MAGIC %md
# MAGIC ## At the other site
# MAGIC Each click arrives twice, and is in the table once.

# COMMAND ----------

topology = spark_wan.load_topology(config)
receiver = spark_wan.Receiver(spark, topology, "seattle").start(available_now=True)
receiver.await_termination()
for received in receiver.status():
    print(f"{received.stream}: {received.events} events, {received.duplicates} of them repeated")
display(spark.sql(f"SELECT * FROM {catalog}.{schema}.clicks_seattle ORDER BY click"))
