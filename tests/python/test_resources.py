"""Saving many times costs no more memory, threads or file descriptors than saving a few times."""

import json
import sys

import child
import pitstop
import pytest

MEASURE = """
    import gc, json, os, sys, time
    import numpy as np, pitstop

    def measure():
        gc.collect()
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        threads = []
        for _ in range(20):  # one that has just ended may be counted yet
            threads.append(len(os.listdir("/proc/self/task")))
            time.sleep(0.005)
        return {"resident": resident, "threads": min(threads),
                "descriptors": len(os.listdir("/proc/self/fd"))}

    def state(step):
        return {"model": {"w": np.full(1 << 15, step), "layers": [np.full(100, step)] * 3},
                "text": "x" * 1000, "step": step}

    def close_and_open(number):
        with pitstop.AsyncCheckpointer(sys.argv[1], fsync=False) as checkpointer:
            checkpointer.save(number, state(number), overwrite=True)

    def measured(work, warm_up, times):
        for number in range(warm_up):
            work(number)
        before = measure()
        for number in range(warm_up, warm_up + times):
            work(number)
        return before, measure()
"""

SAVES = """
    with pitstop.AsyncCheckpointer(sys.argv[1], retention=pitstop.KeepLast(2), fsync=False) as checkpointer:
        def work(number):
            checkpointer.save(number, state(number), metrics={"loss": 1 / (number + 1)})
            if number % 10 == 9:
                checkpointer.wait()
        print(json.dumps(measured(work, 200, 1000)))
"""

RESTORES = """
    with pitstop.AsyncCheckpointer(sys.argv[1], fsync=False) as checkpointer:
        checkpointer.save(1, state(1)).result()
        filled = state(0)
        def work(number):
            checkpointer.restore()
            checkpointer.restore(1, mmap=True)
            checkpointer.resume(into=filled)
            pitstop.restore(sys.argv[1])
            checkpointer.checkpoints()
        print(json.dumps(measured(work, 50, 300)))
"""

OPENS = """
    print(json.dumps(measured(close_and_open, 50, 200)))
"""

REFUSALS = """
    with pitstop.AsyncCheckpointer(sys.argv[1], fsync=False) as checkpointer:
        checkpointer.save(1, state(1)).result()
        def work(number):
            for bad in ({"w": np.ones(1 << 15), "f": print}, state(1)):
                try:
                    checkpointer.save(1, bad)
                except (pitstop.UnsupportedTypeError, pitstop.StepExistsError):
                    pass
        print(json.dumps(measured(work, 50, 500)))
"""

FAILURES = """
    aside = sys.argv[1] + "-aside"
    with pitstop.AsyncCheckpointer(sys.argv[1], fsync=False) as checkpointer:
        os.rename(sys.argv[1], aside)
        open(sys.argv[1], "w").close()
        def work(number):
            try:
                checkpointer.save(number, state(number)).result()
            except pitstop.SaveError:
                pass
        print(json.dumps(measured(work, 50, 300)))
"""

MEBIBYTE = 1 << 20


def assert_no_growth(program, run):
    before, after = json.loads(child.run(MEASURE + program, run))
    assert after["threads"] <= before["threads"]
    assert after["descriptors"] <= before["descriptors"]
    assert after["resident"] - before["resident"] < 8 * MEBIBYTE


def test_a_thousand_saves_do_not_grow(run):
    assert_no_growth(SAVES, run)
    assert [info.step for info in pitstop.checkpoints(run)] == [1198, 1199]


def test_hundreds_of_restores_do_not_grow(run):
    assert_no_growth(RESTORES, run)


def test_hundreds_of_checkpointers_do_not_grow(run):
    assert_no_growth(OPENS, run)


def test_hundreds_of_refused_saves_do_not_grow(run):
    assert_no_growth(REFUSALS, run)


def test_hundreds_of_failed_saves_do_not_grow(run):
    """A new worker is started after a failure; the old one must be gone."""
    assert_no_growth(FAILURES, run)


def test_a_closed_checkpointer_leaves_no_thread_and_no_descriptor(run):
    output = child.run(
        MEASURE
        + """
    before = measure()
    close_and_open(1)
    after = measure()
    print([after[name] - before[name] for name in ("threads", "descriptors")])
""",
        run,
    )
    assert output.strip() == "[0, 0]"


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is told by /proc")
def test_a_large_state_is_not_held_twice(run):
    """Beside the state itself there is one arena of its size, and no copy more."""
    output = child.run(
        MEASURE
        + """
    large = {"model": {"w": np.ones(32 << 20)}}
    with pitstop.AsyncCheckpointer(sys.argv[1], fsync=False, incremental=False) as checkpointer:
        for step in range(4):
            checkpointer.save(step, large, overwrite=True)
        checkpointer.wait()
    # Not ru_maxrss: that also counts what the parent held when this process was started.
    status = open("/proc/self/status").read()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    print(peak / large["model"]["w"].nbytes)
""",
        run,
    )
    assert float(output) < 2.6
