"""Why a download failed, in one sentence. No test starts Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_wan.errors import WanError
from spark_wan.local import prepare

NOT_FOUND = (
    ":: loading settings :: host Maven\n"
    "unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.0: not found"
)


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        ("\tHost repo1.maven.org not found. url=https://repo1.maven.org/maven2/a.pom", "network"),
        ("\tServer access error at url https://repo1.maven.org (Connection reset)", "network"),
        ("java.net.ConnectException: Connection refused", "network"),
        ("java.io.IOException: No space left on device", "no space is left on the disk"),
        (NOT_FOUND, "see the log"),
        ("Hostname localhost resolves to a loopback address: 127.0.0.1", "see the log"),
    ],
)
def test_a_failed_download_has_its_cause_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, cause: str
) -> None:
    monkeypatch.setattr(prepare, "cached_jars", list)
    monkeypatch.setattr(prepare, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(prepare, "_run", lambda code, log: log.write_text(printed))
    with pytest.raises(WanError, match=cause) as raised:
        prepare.prepare_jars()
    assert str(tmp_path / "ivy.log") in str(raised.value)
    assert ("network" in str(raised.value)) == (cause == "network")
