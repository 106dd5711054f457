"""Frames, manifests, acks, a site's state, logs of topics and topology files that are wrong in
random ways: an error of ours, or nothing. ``make fuzz`` tries a million of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import seeds

INPUTS = int(os.environ.get("SPARK_WAN_FUZZ_INPUTS", "8000"))
FUZZER = Path(__file__).parent / "fuzzer.py"
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process, as Linux can")
@pytest.mark.parametrize(
    ("target", "share"),
    [
        *(("frames", 0.35), ("manifests", 0.25), ("acks", 0.15), ("states", 0.1)),
        *(("logs", 0.1), ("topologies", 0.05)),
    ],
)
def test_what_is_wrong_is_refused_or_read(target: str, share: float, tmp_path: Path) -> None:
    """In a process of its own: a crash of Arrow, or too much memory, ends that one."""
    words = [sys.executable, str(FUZZER), target, str(int(INPUTS * share)), str(seeds.seed())]
    paths = [ROOT, ROOT / "tests", ROOT / "tests" / "support"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    kept = f"; the input is in {tmp_path}" if list(tmp_path.iterdir()) else ""
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{kept}"
    print(done.stdout)
