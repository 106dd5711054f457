# Databricks notebook source
# MAGIC %md
# MAGIC # Send
# MAGIC The sending site, newark. It captures the changes of a table, and writes them to the
# MAGIC channel. The notebook `receive` is the other site. As a job, run this one on a schedule; or
# MAGIC leave `available_now=True` out, and run it as a continuous job.
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
place = f"{folder}/orders"  # of the channel and the states: a folder, or a URL

# COMMAND ----------

# MAGIC %md
# MAGIC ## The topology
# MAGIC One file says which site sends which table where. All sites read the same. Keep it in
# MAGIC version control; here the notebook writes it.

# COMMAND ----------

(folder / "orders.yaml").write_text(f"""
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
      newark: {catalog}.{schema}.orders_newark
      seattle: {catalog}.{schema}.orders_seattle
""")
topology = spark_wan.load_topology(folder / "orders.yaml")

# COMMAND ----------

# MAGIC %md
# MAGIC ## A table to send
# MAGIC Senders read Delta's change feed, so the table must have one. Each run of this cell changes
# MAGIC rows.

# COMMAND ----------

orders = topology.tables["orders"].at["newark"]
spark.sql(
    f"CREATE TABLE IF NOT EXISTS {orders} (id BIGINT, item STRING, amount DOUBLE) USING DELTA "
    "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
)
spark.sql(
    f"MERGE INTO {orders} t USING (SELECT id, concat('item ', id) AS item, rand() AS amount "
    "FROM range(10)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET t.amount = s.amount WHEN NOT MATCHED THEN INSERT *"
)
display(spark.sql(f"SELECT * FROM {orders} ORDER BY id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Send what is new
# MAGIC A crash at any moment loses nothing and sends nothing twice: the next run continues where
# MAGIC the channel's log ends.

# COMMAND ----------

sender = spark_wan.Sender(spark, topology, "newark").start(available_now=True)
sender.await_termination()
for sent in sender.status():
    print(f"{sent.stream}: {sent.events} events sent; held: {sent.held}")
