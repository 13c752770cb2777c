"""What was reported as committed is there after a power cut, on a real file system.

A small part of `tests/torture/power_loss.py`, and proof that it would see a loss.
"""

import power
import pytest
import volatile

SMALL = {"nbytes": 3_000_000, "saves": 6}


def cut(tmp_path, **how):
    try:
        return power.campaign(tmp_path, "ext4", cuts=4, seed="small", **SMALL | how)
    except volatile.NotPermittedError as error:
        pytest.skip(f"cutting the power of a file system is not permitted here: {error}")


@pytest.mark.parametrize("way", ["recycling", "overwriting"])
def test_what_was_committed_survives_a_power_cut(tmp_path, way):
    count = cut(tmp_path, way=way)
    assert (count.losses, count.wrong) == ([], []), count
    assert count.restored >= count.at_commits


def test_without_fsync_a_power_cut_would_be_seen_to_lose_something(tmp_path):
    count = cut(tmp_path, way="recycling", fsync=False)
    assert count.losses
