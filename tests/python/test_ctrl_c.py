"""Ctrl-C during anything, once and twice: no hang, no half checkpoint."""

import os
import random
import signal
import threading
import time

import child
import disk
import numpy as np
import pitstop
import pytest

LOOPS = {
    "save": """
    with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2), incremental=False) as checkpointer:
        for step in range(first, 10**9):
            checkpointer.save(step, state(step))
    """,
    "wait": """
    with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2), incremental=False) as checkpointer:
        for step in range(first, 10**9):
            checkpointer.save(step, state(step))
            checkpointer.wait()
    """,
    "result": """
    with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2), incremental=False) as checkpointer:
        for step in range(first, 10**9):
            checkpointer.save(step, state(step)).result()
    """,
    "close": """
    for step in range(first, 10**9):
        checkpointer = pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2), incremental=False)
        checkpointer.save(step, state(step))
        checkpointer.close()
    """,
    "restore": """
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        while True:
            checkpointer.restore(1)
    """,
    "resume": """
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        filled = state(0)
        while True:
            checkpointer.resume(into=filled)
    """,
    "pitstop.restore": """
    while True:
        pitstop.restore(run)
    """,
    "pitstop.save": """
    for step in range(first, 10**9):
        pitstop.save(run, state(step), step=step)
        if step > 3:
            pitstop.save(run, state(3), step=3, overwrite=True)
    """,
}

PROGRAM = """
    import sys, numpy as np, pitstop
    run, first = sys.argv[1], 2
    weight = np.zeros(2 << 20)
    def state(step):
        weight[:] = step
        return {{"model": {{"w": weight}}, "step": step}}
    print("ready", flush=True)
{loop}
"""


@pytest.fixture
def started_run(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"model": {"w": np.ones(2 << 20)}, "step": 1})
    return run


def interrupt(run, loop, times, seed):
    """Sends `times` SIGINTs into the middle of a loop and returns how the process ended."""
    dice = random.Random(f"{loop} {times} {seed}")
    process = child.start(PROGRAM.format(loop=LOOPS[loop]), run)
    child.read_until(process, "ready")
    time.sleep(0.02 + 0.2 * dice.random())
    for number in range(times):
        if number:
            time.sleep(0.02 * dice.random())
        process.send_signal(signal.SIGINT)
    return child.end(process)


def assert_nothing_is_half(run):
    for step in disk.whole_steps(run):
        back = pitstop.restore(run, step)
        assert back["step"] == step
        assert (back["model"]["w"] == step).all()
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(10**9, {"still": "usable"}).result()
    assert not disk.leftovers(run)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("loop", LOOPS)
def test_one_ctrl_c_raises_keyboard_interrupt(started_run, loop, seed):
    code, _, errors = interrupt(started_run, loop, 1, seed)
    assert code == -signal.SIGINT, errors
    assert "KeyboardInterrupt" in errors
    assert_nothing_is_half(started_run)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("loop", LOOPS)
def test_two_ctrl_cs_do_not_hang(started_run, loop, seed):
    code, _, errors = interrupt(started_run, loop, 2, seed)
    assert code in (-signal.SIGINT, 1, 128 + signal.SIGINT), errors
    assert_nothing_is_half(started_run)


@pytest.mark.parametrize("loop", ["save", "wait", "close"])
def test_many_ctrl_cs_do_not_hang(started_run, loop):
    code, _, errors = interrupt(started_run, loop, 8, "many")
    assert code != 0, errors
    assert_nothing_is_half(started_run)


def test_ctrl_c_is_heard_while_waiting_and_not_after(tmp_path):
    """A wait with signals blocked would raise only once a save of many seconds is over."""
    output = child.run(
        """
        import os, signal, sys, threading, time, numpy as np, pitstop
        state = {"w": np.ones(16 << 20)}
        with pitstop.AsyncCheckpointer(sys.argv[1], incremental=False) as checkpointer:
            handle = checkpointer.save(1, state)
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                checkpointer.wait()
                time.sleep(1)
            except KeyboardInterrupt:
                print("in flight" if not handle.done() else "over")
            handle.result()
        """,
        tmp_path / "run",
    )
    assert output.strip() == "in flight"
    assert disk.whole_steps(tmp_path / "run") == [1]


def test_a_checkpointer_survives_ctrl_c(run, big_state):
    with pitstop.AsyncCheckpointer(run, incremental=False) as checkpointer:
        for step in range(1, 5):
            checkpointer.save(step, big_state)
            with pytest.raises(KeyboardInterrupt):
                interrupted_wait(checkpointer)
        checkpointer.wait()
        assert disk.whole_steps(run) == [1, 2, 3, 4]


def interrupted_wait(checkpointer):
    timer = threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    checkpointer.wait()
    timer.join()
