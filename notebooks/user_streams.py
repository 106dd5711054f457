# Databricks notebook source
# MAGIC %md
# MAGIC # Streams of your own
# MAGIC The sink `format("wan")` sends the rows of any DataFrame or stream as events. A column
# MAGIC identifies each event for ever, so an event that is sent again takes effect once.

# COMMAND ----------

import pathlib

import spark_wan

dbutils.widgets.text("folder", "/Volumes/main/default/wan_clicks")
folder = pathlib.Path(dbutils.widgets.get("folder"))
folder.mkdir(parents=True, exist_ok=True)
(folder / "wan.yaml").write_text("""
version: 1
sites:
  newark:  {state: ./newark/_wan}
  seattle: {state: ./seattle/_wan}
senders:
  web: {site: newark, remotes: [seattle], channel: ./channel}
tables:
  clicks:
    source: sink
    keys: []
    writers: [newark]
    senders: [web]
    at: {seattle: ./seattle/clicks}
""")
spark_wan.register(spark)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A stream of clicks
# MAGIC Any streaming source will do. Here it is a Delta table. All clicks are sent twice.

# COMMAND ----------

spark.sql(
    "SELECT concat('c', id) AS click, id % 3 AS visitor, concat('/page/', id % 4) AS page "
    "FROM range(10)"
).write.format("delta").mode("overwrite").save(f"{folder}/clicks")

clicks = spark.readStream.format("delta").option("ignoreChanges", "true").load(f"{folder}/clicks")


def send(checkpoint):
    """Send all clicks. A new checkpoint sends them again."""
    query = (
        clicks.writeStream.format("wan")
        .option("config", f"{folder}/wan.yaml")
        .option("sender", "web")
        .option("table", "clicks")
        .option("eventId", "click")
        .option("checkpointLocation", f"{folder}/checkpoints/{checkpoint}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


send("first")
send("second")

# COMMAND ----------

# MAGIC %md
# MAGIC ## At the other site
# MAGIC Each click is there once.

# COMMAND ----------

topology = spark_wan.load_topology(folder / "wan.yaml")
receiver = spark_wan.Receiver(spark, topology, "seattle").start(available_now=True)
receiver.await_termination()
for status in receiver.status():
    print(status)
arrived = spark.read.format("delta").load(f"{folder}/seattle/clicks").orderBy("click")
display(arrived)
