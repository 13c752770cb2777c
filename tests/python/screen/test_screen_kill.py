"""A kill reaches a training wherever it is: in other threads, during a save, and where it was swallowed."""

import os
import re

import pitstop
import pytest
from terminal import python
from training import ended

KILLED = "Killing training from user input."

ELSEWHERE = """
    import sys, threading, time, pitstop

    def train():
        try:
            with pitstop.Renderer() as screen:
                screen.log(loss=1.0)
                {loop}
        except BaseException as error:
            print(f"ended by {{type(error).__name__}}: {{error}}")

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    print("the main thread goes on")
"""


def up(terminal):
    """Waits until the screen is there, and the loop was begun."""
    terminal.wait_until(lambda: b"\x1b[?1049h" in terminal.raw, "the whole screen")
    terminal.wait_for("loss")
    return terminal


@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass",
        "while True: time.sleep(0.01)",
        "while True: screen.log(loss=1.0)",
        "for _ in screen.track(iter(int, 1)): pass",
    ],
)
def test_in_another_thread_while_the_main_one_waits_for_it(loop):
    with python(ELSEWHERE.format(loop=loop)) as terminal:
        up(terminal).type("qk")
        printed = ended(terminal)
    assert f"ended by TrainingKilled: {KILLED}\nthe main thread goes on\n" in printed


def test_a_save_in_flight_is_committed_or_leaves_no_trace(tmp_path):
    with python(
        """
        import sys, pitstop

        weight = bytearray(16 << 20)
        with pitstop.AsyncCheckpointer(sys.argv[1], incremental=False, retention=pitstop.KeepLast(2)) as ckpt:
            with pitstop.Renderer(checkpointer=ckpt) as screen:
                for step in screen.track(range(1, 10**9)):
                    weight[:8] = step.to_bytes(8)
                    ckpt.save(step, {"step": step, "w": weight})
                    screen.log(loss=1 / step)
        """,
        tmp_path / "run",
    ) as terminal:
        up(terminal).type("qk")
        printed = ended(terminal, 1)
    assert printed.strip().splitlines()[-1] == f"pitstop.errors.TrainingKilled: {KILLED}"
    assert printed.count("TrainingKilled") == 1, "it is raised once"
    assert not list((tmp_path / "run").glob(".tmp-*"))
    for info in pitstop.checkpoints(tmp_path / "run"):
        state = pitstop.restore(tmp_path / "run", info.step)
        assert int.from_bytes(state["w"][:8]) == state["step"] == info.step


def test_the_workers_of_a_training_end_with_it():
    with python(
        """
        import multiprocessing, time, pitstop

        fork = multiprocessing.get_context("fork")
        worker = fork.Process(target=time.sleep, args=(1000,), daemon=True)  # as those of data loaders are
        worker.start()
        with pitstop.Renderer() as screen:
            print("worker", worker.pid)
            screen.log(loss=1.0)
            time.sleep(1000)
        """
    ) as terminal:
        up(terminal).type("qk")
        printed = ended(terminal, 1)
    worker = re.search(r"worker (\d+)", printed)
    with pytest.raises(ProcessLookupError):
        os.kill(int(worker[1]), 0)


def test_one_that_was_swallowed_can_be_repeated():
    """By code that catches everything, or in a place from which no exception comes out."""
    with python(
        """
        import time, pitstop

        with pitstop.Renderer() as screen:
            screen.log(loss=1.0)
            try:
                time.sleep(1000)
            except BaseException:
                screen.log(caught=1.0)  # which does not raise, since it is being handled
            time.sleep(1000)
        """
    ) as terminal:
        up(terminal).type("qk")
        terminal.wait_for("caught")
        terminal.type("qk")
        printed = ended(terminal, 1)
    assert printed.strip().splitlines()[-1] == f"pitstop.errors.TrainingKilled: {KILLED}"


def test_the_next_call_raises_it_too_after_it_was_swallowed():
    with python(
        """
        import time, pitstop

        class Swallows:
            def __del__(self):
                time.sleep(1000)

        with pitstop.Renderer() as screen:
            screen.log(loss=1.0)
            Swallows()
            time.sleep(0.1)
            screen.log(loss=1.0)
            print("not reached")
        """
    ) as terminal:
        up(terminal).type("qk")
        printed = ended(terminal, 1)
    assert printed.strip().splitlines()[-1] == f"pitstop.errors.TrainingKilled: {KILLED}"
    assert "Exception ignored " in printed
    assert "not reached" not in printed


def test_cleaning_up_may_tell_the_screen_and_the_kill_stays_the_only_exception():
    with python(
        """
        import time, pitstop

        with pitstop.Renderer() as screen:
            screen.log(loss=1.0)
            try:
                time.sleep(1000)
            finally:
                screen.event("cleaned up")
                print("cleaned up")
        """
    ) as terminal:
        up(terminal).type("qk")
        printed = ended(terminal, 1)
    assert "cleaned up" in printed
    assert printed.count("TrainingKilled") == 1
    assert "During handling" not in printed
