"""A run that is killed at any moment continues exactly where it was."""

import random
import signal
import time

import child
import disk
import killing
import pitstop
import pytest
import trainer

TRAINER = "import runpy, sys; runpy.run_module('trainer', run_name='__main__', alter_sys=False)"


@pytest.fixture(scope="module")
def never_killed():
    """The final bits of a run that was never killed, nor saved anything."""
    return trainer.train()


def kill_during_a_save(run, dice, furthest=trainer.STEPS):
    """Starts the trainer, kills it during or just after some save, and returns (start, last committed)."""
    process = child.start(TRAINER, run)
    lines = child.read_until(process, "start")
    start = int(lines[-1].split()[1])
    target = dice.randint(start + 1, min(start + furthest, trainer.STEPS))
    lines += child.read_until(process, f"saving {target}")
    time.sleep(dice.random() * 0.01)
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=child.TIMEOUT)
    lines += output.splitlines()
    committed = [int(line.split()[1]) for line in lines if line.startswith("committed")]
    return start, max(committed, default=start)


def assert_resumes_where_it_was(run, committed, expected):
    newest = max((info.step for info in pitstop.checkpoints(run)), default=0)
    assert newest >= committed, f"step {committed} was reported as committed and is gone"
    disk.whole_steps(run)
    lines = []
    assert trainer.train(run, lines.append) == expected
    assert lines[0] == f"start {newest}"
    assert not disk.leftovers(run)


@pytest.mark.parametrize("seed", range(50))
def test_a_run_killed_during_a_save_ends_bit_identical(run, never_killed, seed):
    _, committed = kill_during_a_save(run, random.Random(seed))
    assert_resumes_where_it_was(run, committed, never_killed)


def test_a_run_killed_again_and_again_ends_bit_identical(run, never_killed):
    dice = random.Random("again")
    committed = 0
    for _ in range(6):
        start, newest = kill_during_a_save(run, dice, furthest=2)
        assert start >= committed
        committed = newest
    assert_resumes_where_it_was(run, committed, never_killed)


def test_a_run_never_killed_ends_the_same_with_saving_as_without(run, never_killed):
    assert trainer.train(run) == never_killed
    assert disk.whole_steps(run) == [trainer.STEPS - 1, trainer.STEPS]


def test_runs_killed_in_every_way_of_saving_lose_nothing(run):
    """Links, overwriting, recycled files, deletions, deferred copies; `make torture` does it at full size."""
    count = killing.campaign(run, 16, 3_000_000, seed="small")
    assert (count.losses, count.wrong) == ([], []), count
    assert count.restored >= 16


EXIT = """
    import os, sys, numpy as np, pitstop
    checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
    checkpointer.save(1, {"w": np.full(10, 1.0)}).result()
    checkpointer.save(2, {"w": np.full(4 << 20, 2.0)})
    if sys.argv[2] == "close":
        checkpointer.close()
"""

ENDINGS = {
    "the end of the program": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError('loss is NaN')", 1),
    "an exception in a hook": ("import atexit; atexit.register(lambda: 1 / 0)", 0),
    "a forgotten checkpointer": ("del checkpointer", 0),
    "a cycle": ("cycle = [checkpointer]; cycle.append(cycle); del checkpointer, cycle", 0),
}


@pytest.mark.parametrize("close", ["close", "leave open"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_that_exits_commits_what_is_in_flight(run, ending, close):
    if close == "close" and ending == "a forgotten checkpointer":
        close = "close, then forget"
    last_line, code = ENDINGS[ending]
    process = child.start(f"{EXIT}\n    {last_line}\n", run, close)
    assert child.end(process)[0] == code
    assert disk.whole_steps(run) == [1, 2]
    assert not disk.leftovers(run)


@pytest.mark.parametrize("how", ["os._exit(3)", "os.kill(os.getpid(), 9)", "os.abort()"])
@pytest.mark.parametrize("close", ["close", "leave open"])
def test_a_process_that_vanishes_commits_or_leaves_no_trace(run, how, close):
    process = child.start(f"{EXIT}\n    {how}\n", run, close)
    assert child.end(process)[0] != 0
    steps = disk.whole_steps(run)
    assert steps == [1, 2] if close == "close" else steps in ([1], [1, 2])
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        assert checkpointer.steps() == steps
    assert not disk.leftovers(run)


def test_an_exit_in_a_thread_does_not_lose_the_save(run):
    child.run(
        """
        import sys, threading, numpy as np, pitstop
        checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
        def work():
            checkpointer.save(1, {"w": np.full(4 << 20, 1.0)})
            sys.exit(3)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
        run,
    )
    assert disk.whole_steps(run) == [1]


def test_sigterm_without_a_handler_leaves_no_half_checkpoint(run):
    process = child.start(TRAINER, run)
    child.read_until(process, "saving 5")
    process.terminate()
    assert child.end(process)[0] == -signal.SIGTERM
    assert disk.whole_steps(run)


def test_a_killed_overwrite_leaves_the_old_or_the_new(run):
    program = """
        import sys, numpy as np, pitstop
        with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
            for number in range(1, 10**6):
                state = {"a": {"w": np.full(1 << 16, number)}, "b": {"w": np.full(1 << 16, number)}}
                checkpointer.save(7, state, overwrite=True)
                print("saving", number, flush=True)
    """
    dice = random.Random("overwrite")
    for _ in range(8):
        process = child.start(program, run)
        child.read_until(process, f"saving {dice.randint(2, 12)}")
        time.sleep(dice.random() * 0.01)
        process.kill()
        process.communicate(timeout=child.TIMEOUT)
        back = pitstop.restore(run, 7)
        values = {*back["a"]["w"].tolist(), *back["b"]["w"].tolist()}
        assert len(values) == 1, "two saves were mixed"
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        assert checkpointer.steps() == [7]
    assert disk.visible(run) == {"step-7"}
    assert not disk.leftovers(run)
