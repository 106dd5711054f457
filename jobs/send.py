"""Run the senders of a site under spark-submit:

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 … jobs/send.py \\
        --config topology.yaml --site newark

The session comes from spark-submit, with Delta's extension and catalog configured. The options
and the output are those of ``spark-wan send``, without ``--conf`` and
``--log-file``.
"""

from spark_wan.cli.app import run_job

if __name__ == "__main__":
    run_job("send")
