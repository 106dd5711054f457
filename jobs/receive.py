"""Run the receiver of a site under spark-submit:

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 … jobs/receive.py \\
        --config topology.yaml --site seattle

The session comes from spark-submit, with Delta's extension and catalog configured. The options
and the output are those of ``spark-wan receive``, without ``--conf`` and
``--log-file``.
"""

from spark_wan.cli.app import run_job

if __name__ == "__main__":
    run_job("receive")
