"""``python -m bench``: run the benchmark; the figures go to ``bench/results/end_to_end.json``."""

from bench.end_to_end import main

main()
