"""What `stats` and `memory` tell of saves: counts and bytes; times only as far as they must fit together."""

import numpy as np
import pitstop
import pytest
from test_errors import removed, settle

TIMES = ["stall", "snapshot", "write", "sync", "commit"]
BYTES = ["bytes_written", "bytes_linked"]
SIZE = 1 << 17  # elements: 1 MiB


def state_at(step):
    return {"backbone": {"w": np.ones(SIZE)}, "head": {"w": np.full(SIZE, float(step))}}


def size_of(run, step):
    return sum(file.stat().st_size for file in (run / f"step-{step}").iterdir())


def test_a_fresh_checkpointer_has_saved_nothing(checkpointer):
    stats = checkpointer.stats()
    assert stats.saves == []
    assert (stats.saved, stats.failed, stats.skipped) == (0, 0, 0)
    assert [getattr(stats, name) for name in [*TIMES, *BYTES, "rate"]] == [0] * 8


def test_each_save_is_told_with_what_it_took(checkpointer, run):
    for step in (1, 2, 3):
        checkpointer.save(step, state_at(step)).result()
    saves = checkpointer.stats().saves
    assert [save.step for save in saves] == [1, 2, 3]
    for save in saves:
        assert save.done
        assert not save.failed
        assert all(getattr(save, name) > 0 for name in [*TIMES, "rate"])
        assert save.snapshot + save.write + save.sync + save.commit <= save.durable
        assert save.rate == pytest.approx(save.bytes_written / (save.write + save.sync))


def test_bytes_are_those_of_the_files(checkpointer, run):
    for step in (1, 2):
        checkpointer.save(step, state_at(step)).result()
    first, second = checkpointer.stats().saves
    assert (first.bytes_written, first.bytes_linked) == (size_of(run, 1), 0)
    assert second.bytes_linked == (run / "step-2" / "backbone.safetensors").stat().st_size
    assert second.bytes_written + second.bytes_linked == size_of(run, 2)


def test_sums_are_those_of_all_saves(checkpointer):
    for step in range(10):
        checkpointer.save(step, {"w": np.full(100, step)})
    checkpointer.wait()
    stats = checkpointer.stats()
    assert stats.saved == 10
    for name in [*TIMES, *BYTES]:
        assert getattr(stats, name) == pytest.approx(sum(getattr(save, name) for save in stats.saves))


def test_a_hundred_saves_are_listed_and_all_are_counted(run):
    with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(1), fsync=False) as ckpt:
        for step in range(130):
            ckpt.save(step, {"w": step})
        ckpt.wait()
        stats = ckpt.stats()
    assert [save.step for save in stats.saves] == list(range(30, 130))
    assert stats.saved == 130
    assert stats.bytes_written > 1.2 * sum(save.bytes_written for save in stats.saves)


def test_a_failed_save_is_counted_as_failed(checkpointer, run):
    checkpointer.save(1, state_at(1)).result()
    with removed(run), pytest.raises(pitstop.SaveError):
        checkpointer.save(2, state_at(2)).result()
    checkpointer.save(3, state_at(3)).result()
    stats = checkpointer.stats()
    assert [(save.step, save.failed, save.done) for save in stats.saves] == [
        (1, False, True),
        (2, True, True),
        (3, False, True),
    ]
    assert (stats.saved, stats.failed) == (2, 1)
    assert stats.saves[1].durable is None
    assert "failed" in repr(stats.saves[1])


def test_a_save_that_was_refused_or_skipped_is_no_save(run, big_state):
    with pitstop.AsyncCheckpointer(run, on_busy="skip") as ckpt:
        with pytest.raises(pitstop.UnsupportedTypeError):
            ckpt.save(1, {"w": object()})
        first = ckpt.save(1, big_state)
        second = ckpt.save(2, big_state)
        assert second.skipped
        running = ckpt.stats()
        first.result()
        stats = ckpt.stats()
    assert [save.step for save in stats.saves] == [1]
    assert (stats.saved, stats.skipped) == (1, 1)
    assert (running.saved, running.failed) == (0, 0)
    assert not running.saves[0].done
    assert "in flight" in repr(running.saves[0])


def test_stats_are_there_after_close(run):
    with pitstop.AsyncCheckpointer(run) as ckpt:
        ckpt.save(1, state_at(1))
    assert ckpt.stats().saved == 1
    assert ckpt.memory() == {"in_use": 0, "kept": 0}


def test_stats_can_be_read(checkpointer):
    checkpointer.save(7, state_at(7)).result()
    stats = checkpointer.stats()
    assert repr(stats).startswith("Stats(saved=1, failed=0, skipped=0, stall=0.")
    assert repr(stats.saves[0]).startswith("SaveStats(step=7, durable=0.")
    assert f"bytes_written={stats.bytes_written}" in repr(stats)


def test_memory_tells_what_the_arena_holds(checkpointer, big_state):
    assert checkpointer.memory() == {"in_use": 0, "kept": 0}
    size = big_state["model"]["weight"].nbytes
    handle = checkpointer.save(1, big_state)
    during = checkpointer.memory()
    handle.result()
    settle(handle)
    after = checkpointer.memory()
    assert during["in_use"] + during["kept"] >= size
    assert after["in_use"] == 0
    assert after["kept"] == during["in_use"] + during["kept"]
