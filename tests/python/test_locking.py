"""One writer per directory, and a clear word about who holds it."""

import os
import signal

import child
import disk
import numpy as np
import pitstop
import pytest
from same import assert_same

HOLDER = """
    import sys, numpy as np, pitstop
    checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
    checkpointer.save(1, {"w": np.ones(100)}).result()
    print("holding", flush=True)
    sys.stdin.read()
    if "close" in sys.argv:
        checkpointer.close()
"""


@pytest.fixture
def holder(run):
    """Another process that has `run` open for writing."""
    process = child.start(HOLDER, run)
    child.read_until(process, "holding")
    yield process
    process.kill()
    process.communicate()


def test_a_second_writer_in_the_same_process_is_refused_with_the_pid(checkpointer, run):
    with pytest.raises(pitstop.DirectoryLockedError, match=str(os.getpid())):
        pitstop.AsyncCheckpointer(run)
    checkpointer.save(1, {"w": 1}).result()


def test_a_second_writer_in_another_process_is_refused_with_the_pid(holder, run):
    with pytest.raises(pitstop.DirectoryLockedError, match=str(holder.pid)) as caught:
        pitstop.AsyncCheckpointer(run)
    assert isinstance(caught.value, BlockingIOError)
    assert str(run) in str(caught.value)


def test_another_path_to_the_same_directory_is_refused_too(holder, run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    for path in (tmp_path / "link", run / ".." / "run"):
        with pytest.raises(pitstop.DirectoryLockedError, match=str(holder.pid)):
            pitstop.AsyncCheckpointer(path)


def test_a_refused_writer_disturbs_nothing(holder, run):
    before = disk.everything(run)
    for _ in range(3):
        with pytest.raises(pitstop.DirectoryLockedError):
            pitstop.AsyncCheckpointer(run)
    assert disk.everything(run) == before
    with pytest.raises(pitstop.DirectoryLockedError, match=str(holder.pid)):
        pitstop.AsyncCheckpointer(run)


def test_after_sigkill_of_the_holder_the_next_one_gets_in(holder, run):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        assert checkpointer.latest() == 1
        checkpointer.save(2, {"w": 2}).result()


@pytest.mark.parametrize("how", ["close", "exit"])
def test_after_the_holder_ends_the_next_one_gets_in(run, how):
    process = child.start(HOLDER, run, how)
    child.read_until(process, "holding")
    process.stdin.close()
    assert process.wait(child.TIMEOUT) == 0
    process.stdout.close()
    process.stderr.close()
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        assert checkpointer.latest() == 1


def test_after_close_the_same_process_gets_in_again(run):
    for step in (1, 2, 3):
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(step, {"w": step})
    assert disk.whole_steps(run) == [1, 2, 3]


def test_a_forgotten_checkpointer_does_not_hold_the_directory(run):
    checkpointer = pitstop.AsyncCheckpointer(run)
    checkpointer.save(1, {"w": 1})
    del checkpointer
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        assert checkpointer.latest() == 1


def test_readers_are_welcome_while_a_writer_writes(holder, run):
    assert_same({"w": np.ones(100)}, pitstop.restore(run))
    assert [info.step for info in pitstop.checkpoints(run)] == [1]
    state = {"w": np.zeros(100)}
    pitstop.restore(run / "step-1", into=state)
    assert_same({"w": np.ones(100)}, state)


def test_a_stale_lock_file_holds_nobody_off(run):
    run.mkdir()
    (run / ".lock").write_text("99999999\n")
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"w": 1})


def test_two_directories_do_not_get_in_each_others_way(tmp_path):
    with pitstop.AsyncCheckpointer(tmp_path / "a") as a, pitstop.AsyncCheckpointer(tmp_path / "a" / "b") as b:
        a.save(1, {"w": 1})
        b.save(2, {"w": 2})
    assert pitstop.restore(tmp_path / "a")["w"] == 1
    assert pitstop.restore(tmp_path / "a" / "b")["w"] == 2


def test_a_removed_lock_file_does_not_let_two_writers_in(run):
    # The second one got in, and swept what the first was writing.
    with pitstop.AsyncCheckpointer(run) as first:
        first.save(1, {"n": 1}).result()
        (run / ".lock").unlink()
        with pitstop.AsyncCheckpointer(run) as second:
            second.save(2, {"n": 2}).result()
            with pytest.raises(pitstop.SaveError, match="locked by"):
                first.save(3, {"n": 3}).result()
            first.delete(2)
            with pytest.raises(pitstop.DeleteError, match="locked by"):
                first.wait()
        first.save(3, {"n": 3}).result()
        with pytest.raises(pitstop.DirectoryLockedError):
            pitstop.AsyncCheckpointer(run)
    assert [info.step for info in pitstop.checkpoints(run)] == [1, 2, 3]
