"""When a worker's parent has ended: real processes, whose parent ends or is process 1."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

CHILD = """
import os, sys, time
from spark_wan.datasource.orphans import is_orphan
print("orphan" if is_orphan() else "healthy", os.getppid(), flush=True)
sys.stdin.readline()                        # until the test says that the parent has ended
while os.getppid() == int(sys.argv[1]):     # the kernel gives it another parent a moment later
    time.sleep(0.01)
print("orphan" if is_orphan() else "healthy", os.getppid(), flush=True)
"""
PARENT = """
import os, signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
signal.pause()
"""
SUBREAPER = """
import ctypes
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0    # PR_SET_CHILD_SUBREAPER
"""


def python(*words: str, first: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*first, sys.executable, "-c", *words],
        stdin=pipe,
        stdout=pipe,
        text=True,
        env=environment,
        start_new_session=True,
    )


@pytest.mark.parametrize("subreaper", [False, True], ids=["process 1", "a subreaper"])
@pytest.mark.skipif(
    sys.platform != "linux", reason="what becomes of orphans is the kernel's: Linux is meant"
)
def test_a_worker_whose_parent_ended_is_an_orphan_under_any_new_parent(subreaper: bool) -> None:
    """A killed JVM leaves no worker behind, also where orphans go to a subreaper (systemd,
    containerd)."""
    grandparent = (
        f"{SUBREAPER if subreaper else ''}\nimport subprocess, sys, time\n"
        + textwrap.dedent("""
        parent = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
        print(parent.pid, flush=True)
        parent.wait()
        print("ended", flush=True)
        time.sleep(600)
    """)
    )
    process = python(grandparent, PARENT, CHILD)
    try:
        assert process.stdin is not None and process.stdout is not None
        printed = [process.stdout.readline().split() for _ in range(2)]
        parent = next(int(words[0]) for words in printed if len(words) == 1)
        assert ["healthy", str(parent)] in printed
        os.kill(parent, signal.SIGKILL)
        assert process.stdout.readline() == "ended\n"
        process.stdin.write("\n")
        process.stdin.flush()
        what, whose = process.stdout.readline().split()
        assert (what, int(whose) == process.pid) == ("orphan", subreaper)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_worker_forked_by_a_daemon_knows_its_own_parent() -> None:
    """pyspark's daemon may have imported spark_wan before it forks a worker: the daemon's parent is
    not the worker's."""
    fork = textwrap.dedent("""
        import os
        from spark_wan.datasource.orphans import is_orphan
        if (child := os.fork()) == 0:
            print("orphan" if is_orphan() else "healthy", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """)
    process = python(fork)
    assert process.communicate()[0] == "healthy\n"


LOOKS = """
import sys
from spark_wan.datasource.source import WanStreamReader
from spark_wan.errors import ChannelError
from spark_wan.datasource.options import SourceOptions
from pyspark.sql.streaming.datasource import ReadAllAvailable
reader = WanStreamReader(SourceOptions.parse({"channel": sys.argv[1]}))
try:
    reader.latestOffset({"streams": {}, "again": {}}, ReadAllAvailable())
except ChannelError:
    print("no orphan", flush=True)
except SystemExit:
    print("gave up as an orphan", flush=True)
"""
FIRST = """
import os, subprocess, sys
assert os.getpid() == 1
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2]]).returncode)
"""


def test_a_worker_of_process_1_is_no_orphan(tmp_path: Path) -> None:
    """In a container the JVM may be process 1. A query's worker there reports that a channel does
    not answer, instead of ending without a word."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    ways = (
        ("unshare", "--pid", "--fork"),
        ("unshare", "--user", "--map-root-user", "--pid", "--fork"),
    )
    tried = {way: subprocess.run([*way, "true"], capture_output=True, text=True) for way in ways}
    first = next((way for way, done in tried.items() if done.returncode == 0), None)
    if first is None:
        pytest.skip(
            f"no process namespaces here: {[done.stderr.strip() for done in tried.values()]}"
        )
    (tmp_path / "channel").write_text("a file where the channel's directory should be")
    process = python(FIRST, LOOKS, str(tmp_path / "channel"), first=first)
    assert process.communicate()[0] == "no orphan\n"
