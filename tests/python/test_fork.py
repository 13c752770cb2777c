"""A forked child cannot use its parent's checkpointer, and cannot harm it."""

import os
import signal
import time

import child
import disk
import numpy as np
import pitstop
import pytest
from same import assert_same

CALLS = {
    "save": 'checkpointer.save(9, {"w": 9}).result()',
    "delete": "checkpointer.delete(1); checkpointer.wait()",
    "restore": "checkpointer.restore(1)",
    "resume": 'checkpointer.resume(into={"w": 0})',
    "wait": "checkpointer.wait()",
    "result": "handle.result()",
    "wait_snapshot": "handle.wait_snapshot()",
    "done": "handle.done()",
    "overwrite": 'checkpointer.save(1, {"w": 9}, overwrite=True).result()',
    "check": "checkpointer.check()",
    "close": "checkpointer.close()",
    "leave": "checkpointer.__exit__(None, None, None)",
    "latest": "checkpointer.latest()",
    "steps": "checkpointer.steps()",
    "plan": "checkpointer.plan()",
    "stats": "checkpointer.stats()",
}

PROGRAM = """
    import os, sys, warnings, numpy as np, pitstop
    warnings.simplefilter("ignore", DeprecationWarning)

    with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
        checkpointer.save(1, {{"w": np.ones(10)}}).result()
        array = np.full(4 << 20, 2.0)
        handle = checkpointer.save(2, {{"w": array}}, deferred={deferred})
        child = os.fork()
        if child == 0:
            try:
                {call}
            except pitstop.CheckpointError as error:
                os._exit(10 if "fork" in str(error) else 11)
            except BaseException:
                os._exit(12)
            os._exit(13)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        assert handle.result().step == 2
        checkpointer.save(3, {{"w": np.full(10, 3.0)}}).result()
    print("steps", [info.step for info in pitstop.checkpoints(sys.argv[1])])
"""


@pytest.mark.parametrize("call", CALLS)
def test_the_child_gets_a_clear_error_and_the_parent_is_unaffected(run, call):
    # With a deferred copy under way, a child that waited for it would wait for ever.
    output = child.run(
        PROGRAM.format(call=CALLS[call], deferred=call in ("wait_snapshot", "save", "close")), run
    )
    assert output.splitlines() == ["child 10", "steps [1, 2, 3]"]
    assert disk.whole_steps(run) == [1, 2, 3]
    assert not disk.leftovers(run)


@pytest.mark.parametrize(
    "ending",
    ["checkpointer.close(); os._exit(0)", "del checkpointer; os._exit(0)", "sys.exit(0)", "raise ValueError"],
)
def test_however_the_child_ends_the_parent_keeps_its_lock_and_its_saves(run, ending):
    output = child.run(
        f"""
        import os, sys, warnings, numpy as np, pitstop
        warnings.simplefilter("ignore", DeprecationWarning)
        checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
        handle = checkpointer.save(1, {{"w": np.full(4 << 20, 1.0)}})
        child = os.fork()
        if child == 0:
            try:
                {ending}
            except pitstop.CheckpointError:
                os._exit(0)
        os.waitpid(child, 0)
        handle.result()
        try:
            pitstop.AsyncCheckpointer(sys.argv[1])
        except pitstop.DirectoryLockedError:
            print("still locked")
        checkpointer.save(2, {{"w": 2}}).result()
        checkpointer.close()
        """,
        run,
    )
    assert output.strip() == "still locked"
    assert disk.whole_steps(run) == [1, 2]


def test_a_child_may_read_and_may_have_a_checkpointer_of_its_own(run, tmp_path):
    output = child.run(
        """
        import os, sys, warnings, numpy as np, pitstop
        warnings.simplefilter("ignore", DeprecationWarning)
        with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
            checkpointer.save(1, {"w": np.ones(10)}).result()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    assert pitstop.restore(sys.argv[1])["w"].sum() == 10
                    with pitstop.AsyncCheckpointer(sys.argv[2]) as own:
                        own.save(5, {"w": 5}).result()
                    code = 0
                finally:
                    os._exit(code)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        run,
        tmp_path / "own",
    )
    assert output.strip() == "0"
    assert disk.whole_steps(tmp_path / "own") == [5]


def test_a_surviving_child_does_not_keep_the_directory_locked(run):
    """A data-loader process that outlived its killed parent kept the run from being resumed."""
    process = child.start(
        """
        import os, sys, time, warnings, numpy as np, pitstop
        warnings.simplefilter("ignore", DeprecationWarning)
        checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
        checkpointer.save(1, {"w": np.ones(10)}).result()
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        print("forked", child, flush=True)
        time.sleep(60)
        """,
        run,
    )
    survivor = int(child.read_until(process, "forked")[-1].split()[1])
    try:
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(0.05)
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            assert_same({"w": np.ones(10)}, checkpointer.restore())
            checkpointer.save(2, {"w": 2}).result()
    finally:
        os.kill(survivor, signal.SIGKILL)
        process.communicate()


WORKERS = """
import multiprocessing, sys, warnings
import numpy as np, pitstop

def work(number):
    return float(np.full(10, number).sum())

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
        for step in range(1, 6):
            checkpointer.save(step, {"w": np.full(1 << 20, float(step))})
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(work, range(4)) == [0.0, 10.0, 20.0, 30.0]
    print("done")
"""


def test_forked_workers_come_and_go_while_saves_run(run):
    assert child.run(WORKERS, run).strip() == "done"
    assert disk.whole_steps(run) == [1, 2, 3, 4, 5]
