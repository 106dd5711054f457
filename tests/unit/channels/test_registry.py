"""Opening channels, and making them usable."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_wan.channels.registry import open_channel, prepare_all
from spark_wan.errors import ChannelError


def test_b13_one_bad_channel_among_good_ones_is_prepared_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Alone, it is an error. Fails when a job cannot start for one of its channels."""
    blocked = tmp_path / "bad"
    blocked.write_text("a file")
    good, bad = open_channel(str(tmp_path / "good")), open_channel(str(blocked))
    prepare_all([good, bad])
    assert str(blocked) in caplog.text
    assert (tmp_path / "good" / "wan-channel.json").exists()
    with pytest.raises(ChannelError):
        bad.ensure_prepared()
    with pytest.raises(ChannelError, match="bad"):
        prepare_all([bad])
    blocked.unlink()
    bad.ensure_prepared()
    (blocked / "wan-channel.json").unlink()
    bad.ensure_prepared()
    assert not (blocked / "wan-channel.json").exists()
    prepare_all([bad])
    assert (blocked / "wan-channel.json").exists()
