"""A renderer in forked children, in threads, in scripts that do not close it, and in a stopped process."""

import os
import signal
import sys
import threading
import time

import child
import pitstop
import pytest
from events import happened, in_short

FORKED = """
    import os, sys, warnings, pitstop
    warnings.simplefilter("ignore", DeprecationWarning)
    with pitstop.Renderer(directory=sys.argv[1]) as screen:
        screen.log(before=1)
        child = os.fork()
        if child == 0:
            screen.log(inside=1)
            assert [screen.step for _ in screen.track([1, 2])] == [0, 0]
            screen.epoch(1)
            screen.end()
            screen.close()
            {leave}
        status = os.waitpid(child, 0)[1]
        assert os.waitstatus_to_exitcode(status) == 0, status
        screen.log(after=1)
"""


@pytest.mark.parametrize("leave", ["os._exit(0)", "del screen; sys.exit()", "sys.exit()"])
def test_in_a_forked_child_all_calls_do_nothing(run, leave):
    child.run(FORKED.format(leave=leave), run)
    assert {one["name"] for one in happened(run, "numeric")} == {"before", "after"}
    assert in_short(run) == "start 0, end"


def test_a_script_that_ends_without_closing_it_is_shown_to_its_end(run):
    child.run(
        """
        import sys, pitstop
        screen = pitstop.Renderer(directory=sys.argv[1])
        screen.start()
        screen.log(loss=1.0)
        """,
        run,
    )
    assert in_short(run) == "start 0, end"
    assert "error" not in happened(run, "end")[0]


def test_a_script_that_fails_without_closing_it_says_so(run):
    code, _, errors = child.end(
        child.start(
            """
            import sys, pitstop
            screen = pitstop.Renderer(directory=sys.argv[1])
            screen.start()
            raise ValueError("the loss is NaN")
            """,
            run,
        )
    )
    assert (code, errors.splitlines()[-1]) == (1, "ValueError: the loss is NaN")
    assert happened(run, "end")[0]["error"] == "ValueError: the loss is NaN"


def test_threads_may_log_side_by_side_and_while_it_is_closed():
    screen = pitstop.Renderer()
    screen.start()
    started, refused = threading.Barrier(5, timeout=60), []

    def log():
        started.wait()
        try:
            while True:
                list(screen.track(range(3), "valid"))
                screen.log(loss=1.0)
        except RuntimeError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=log) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    screen.close()
    for thread in threads:
        thread.join(60)
    assert refused == ["the renderer is closed; each run needs one of its own"] * 4


@pytest.mark.skipif(sys.platform == "win32", reason="no process can be stopped there")
def test_for_how_long_a_process_was_stopped_is_told(run):
    """That time counted for the rate, and for the time left."""
    process = child.start(
        """
        import sys, pitstop
        with pitstop.Renderer(steps=10, directory=sys.argv[1]) as screen:
            screen.log(loss=1.0)
            print("ready", flush=True)
            sys.stdin.readline()
        """,
        run,
    )
    child.read_until(process, "ready")
    deadline = time.monotonic() + 60
    # It may be stopped in the middle of something else than waiting, of which nobody knows how long it takes.
    while not happened(run, "paused"):
        assert time.monotonic() < deadline, "nobody has noticed it"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.6)
    assert child.end(process)[0] == 0
    assert happened(run, "paused")[0]["seconds"] >= 1
