"""``python -m bench``: measure, print, and write ``bench/results/end_to_end.json``."""

from bench.end_to_end import main

main()
