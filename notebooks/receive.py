# Databricks notebook source
# MAGIC %md
# MAGIC # Receive
# MAGIC The receiving site, seattle. It applies what the sender wrote to the channel, and acks it.
# MAGIC Run the notebook `send` first, with the same folder.

# COMMAND ----------

import pathlib

import spark_wan

dbutils.widgets.text("folder", "/Volumes/main/default/wan")
folder = pathlib.Path(dbutils.widgets.get("folder"))
topology = spark_wan.load_topology(folder / "wan.yaml")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Apply what has arrived
# MAGIC The receiver makes the table on first contact. Without `available_now=True` it runs until
# MAGIC `stop()`. Starting it on another cluster is no move: its progress is in the table and in the
# MAGIC site's ledger.

# COMMAND ----------

receiver = spark_wan.Receiver(spark, topology, "seattle").start(available_now=True)
receiver.await_termination()
for status in receiver.status():
    print(status)

# COMMAND ----------

received = spark.read.format("delta").load(f"{folder}/seattle/orders").orderBy("id")
display(received)

# COMMAND ----------

# MAGIC %md
# MAGIC ## How the rows came here
# MAGIC Each commit of a receiver carries a mark in the table's history. It says what was applied,
# MAGIC so that no event takes effect twice.

# COMMAND ----------

history = spark.sql(f"DESCRIBE HISTORY delta.`{folder}/seattle/orders`")
display(history.select("version", "operation", "userMetadata"))
