# Databricks notebook source
# MAGIC %md
# MAGIC # Send
# MAGIC The sending site, newark. It captures the changes of a table and writes them to the channel.
# MAGIC As a job, run this notebook on a schedule, or without `available_now=True` as a job that
# MAGIC never ends.
# MAGIC
# MAGIC On a cluster, install the package as a library first. The folder is one that both sites can
# MAGIC reach, such as a volume. (These notebooks were run with local sessions, not on Databricks.)

# COMMAND ----------

import pathlib

import spark_wan

dbutils.widgets.text("folder", "/Volumes/main/default/wan")
folder = pathlib.Path(dbutils.widgets.get("folder"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The topology
# MAGIC One file says which site sends which table where. Both sites read it. Keep it in version
# MAGIC control; here the notebook writes it.

# COMMAND ----------

folder.mkdir(parents=True, exist_ok=True)
(folder / "wan.yaml").write_text("""
version: 1
sites:
  newark:  {state: ./newark/_wan}
  seattle: {state: ./seattle/_wan}
senders:
  east: {site: newark, remotes: [seattle], channel: ./channel}
tables:
  orders:
    keys: [id]
    writers: [newark]
    senders: [east]
    at: {newark: ./newark/orders, seattle: ./seattle/orders}
""")
topology = spark_wan.load_topology(folder / "wan.yaml")

# COMMAND ----------

# MAGIC %md
# MAGIC ## A table to send
# MAGIC Senders read Delta's change feed, so the table needs one. Each run of this cell changes some
# MAGIC rows.

# COMMAND ----------

orders = f"delta.`{folder}/newark/orders`"
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
# MAGIC A crash at any moment loses and doubles nothing: the next run goes on where the channel's
# MAGIC log ends.

# COMMAND ----------

sender = spark_wan.Sender(spark, topology, "newark").start(available_now=True)
sender.await_termination()
for status in sender.status():
    print(status)
