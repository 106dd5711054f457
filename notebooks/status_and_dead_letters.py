# Databricks notebook source
# MAGIC %md
# MAGIC # Status and dead letters
# MAGIC How far each site is, and what becomes of a row that a target refuses.

# COMMAND ----------

import pathlib
import uuid

import spark_wan
from spark_wan.status.reports import read_status

dbutils.widgets.text("folder", "/Volumes/main/default/wan_letters")
folder = pathlib.Path(dbutils.widgets.get("folder")) / uuid.uuid4().hex[:8]  # each run has its own
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
newark, seattle = f"delta.`{folder}/newark/orders`", f"delta.`{folder}/seattle/orders`"


def replicate():
    """Send, then receive."""
    spark_wan.Sender(spark, topology, "newark").start(available_now=True).await_termination()
    spark_wan.Receiver(spark, topology, "seattle").start(available_now=True).await_termination()


# COMMAND ----------

# MAGIC %md
# MAGIC ## A row that the target refuses
# MAGIC Seattle has a constraint of its own. The row that breaks it becomes a dead letter, with its
# MAGIC cause; the others arrive.

# COMMAND ----------

for table in (newark, seattle):
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, amount DOUBLE) USING DELTA "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
spark.sql(f"ALTER TABLE {seattle} ADD CONSTRAINT positive CHECK (amount > 0)")
spark.sql(f"INSERT INTO {newark} VALUES (1, 10.0), (2, -5.0), (3, 30.0)")
replicate()
refused = spark.sql(f"SELECT * FROM {seattle} ORDER BY id").collect()
display(spark.sql(f"SELECT * FROM {seattle} ORDER BY id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The ledger of dead letters
# MAGIC It has the whole row, the cause, and the stream of the event. Letters stay there.
# MAGIC Letters of an apply that was never finished do not count: their `token` is not in `applied`.

# COMMAND ----------

ledger = f"{folder}/seattle/_wan/ledger"
letters = spark.read.format("delta").load(f"{ledger}/dead_letters").where("side = 'receiver'")
applied = spark.read.format("delta").load(f"{ledger}/applied").select("token")
final = letters.join(applied, "token", "left_semi").union(
    letters.where("token LIKE 'marked%'").select("token", *letters.drop("token").columns)
)
display(final.select("table", "stream", "operation", "row", "cause"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The remedy
# MAGIC Mend the row where it was written. The change travels like any other.

# COMMAND ----------

spark.sql(f"UPDATE {newark} SET amount = 5.0 WHERE id = 2")
replicate()
mended = spark.sql(f"SELECT * FROM {seattle} ORDER BY id").collect()
display(spark.sql(f"SELECT * FROM {seattle} ORDER BY id"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## How far every site is
# MAGIC `spark-wan status` prints the same in a terminal, without Spark.

# COMMAND ----------

reports = read_status(topology)
for channel in reports:
    for stream in channel.streams:
        for site in stream.sites:
            print(stream.stream, site.site, "has applied", site.acked, "of", stream.epoch)
