"""How other checkpointers fail, measured one by one; pitstop must not. One test or more for each failure.

Most of it is tested at greater length elsewhere; here each failure is reproduced as it was seen.
"""

import contextlib
import errno
import re
import shutil
import time
from pathlib import Path

import child
import disk
import known
import numpy as np
import pitstop
import power
import pytest
import volatile
from same import assert_same

MIB = 1 << 20


def state_of(step, nbytes=400_000):
    state = known.blank(nbytes)
    known.change(state, step)
    return state


# "Power loss right after 'done': for all 13 peers the checkpoint just reported as done is not restorable."


def test_a_power_cut_right_after_the_report_loses_nothing(tmp_path):
    try:
        count = power.campaign(
            tmp_path, "ext4", "hard links", cuts=0, seed="peers", nbytes=2_000_000, saves=3
        )
    except volatile.NotPermittedError as error:
        pytest.skip(f"cutting the power of a file system is not permitted here: {error}")
    assert count.at_commits == count.cuts > 0
    assert (count.losses, count.wrong) == ([], [])


# "A flipped bit in the data comes back silently."


def test_a_flipped_bit_is_noticed_and_named(run, checkpointer):
    for step in (1, 2):
        checkpointer.save(step, state_of(step)).result()
    file = run / "step-2" / "optimizer.safetensors"
    disk.flip(file, file.stat().st_size // 2)
    with pytest.raises(pitstop.CorruptCheckpointError, match=r"step-2.*optimizer"):
        checkpointer.restore(2)
    with pytest.warns(UserWarning, match="step-2"):
        assert checkpointer.restore()["step"] == 1


# "Disk full during a background save: told only by the future, in a message that hides 'no space', or not at
# all, or by the next call and then for ever; half a file under the final name; the space stays taken, so that
# the next save fails too."


def test_a_full_disk_is_told_by_the_next_call_in_plain_words_and_only_once(small_disk):
    with pitstop.AsyncCheckpointer(small_disk / "run") as checkpointer:
        checkpointer.save(1, state_of(1)).result()
        handle = checkpointer.save(2, state_of(2, 8 * MIB))
        while not handle.done():
            time.sleep(0.005)
        with pytest.raises(pitstop.SaveError, match="No space left on device"):
            checkpointer.save(3, state_of(3))
        checkpointer.save(3, state_of(3)).result()
        checkpointer.wait()


def test_a_full_disk_leaves_no_half_file_and_no_space_taken(small_disk):
    run = small_disk / "run"
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state_of(1)).result()
        free = shutil.disk_usage(small_disk).free
        with pytest.raises(pitstop.SaveError) as caught:
            checkpointer.save(2, state_of(2, 8 * MIB)).result()
        assert caught.value.__cause__.errno == errno.ENOSPC
        assert shutil.disk_usage(small_disk).free == free
        assert {path.name for path in run.iterdir()} == {".lock", "step-1"}
        checkpointer.save(2, state_of(2, 3 * MIB)).result()  # needs most of what is left


# "A script that ends without asking exits with 0; some say nothing at all."

UNASKED = """
    import os, sys, pitstop
    checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
    checkpointer.save(1, {"w": 1}).result()
    os.rename(sys.argv[1], sys.argv[1] + "-aside")
    handle = checkpointer.save(2, {"w": 2})
    print("done", flush=True)
"""


@pytest.mark.parametrize(
    "waiting", ["", "while not handle.done(): pass", "import gc; gc.collect()", "sys.stdout.close()"]
)
def test_a_script_that_ends_without_asking_says_what_failed_and_does_not_exit_with_0(run, waiting):
    code, output, errors = child.end(child.start(f"{UNASKED}\n    {waiting}\n", run))
    assert code == 120  # what Python says when the end of a script fails
    assert output == "done\n"
    assert errors.count("SaveError: step 2: Error when saving the state: ") == 1
    assert "No such file or directory" in errors


def test_a_script_that_asked_and_went_on_exits_with_0(run):
    asked = """
    try:
        handle.result()
    except pitstop.SaveError:
        pass
    """
    code, _, errors = child.end(child.start(UNASKED + asked, run))
    assert (code, errors) == (0, "")


def test_a_script_that_prints_at_exit_is_not_disturbed(run):
    """Whoever flushes between the failed save and the end is not the one to be told."""
    # Registered first, so that it runs last.
    last_word = (
        "\n    import atexit, sys; atexit.register(lambda: print('bye', sys.stdout.closed, flush=True))"
    )
    code, output, _ = child.end(child.start(last_word + UNASKED, run))
    assert code == 120
    assert output == "done\nbye False\n"


# "SIGKILL during a save: the newest step by name does not load. Overwriting one path: the only checkpoint is
# destroyed. Forked and spawned writers live on as orphans."

ENDLESS = """
    import sys, known, pitstop
    state = known.blank(4 << 20)
    with pitstop.AsyncCheckpointer(sys.argv[1], incremental=False) as checkpointer:
        for number in range(1, 10**6):
            known.change(state, number)
            checkpointer.save({step}, state, overwrite={overwrite})
            print("saving", number, flush=True)
"""


@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.parametrize("overwrite", [False, True])
def test_after_sigkill_the_newest_step_by_name_loads(run, overwrite, attempt):
    program = ENDLESS.format(step=7 if overwrite else "number", overwrite=overwrite)
    process = child.start(program, run)
    child.read_until(process, f"saving {4 + attempt}")
    time.sleep(0.004 * attempt)
    process.kill()
    process.communicate(timeout=child.TIMEOUT)
    newest = max(int(name.removeprefix("step-")) for name in disk.visible(run))
    assert known.wrong(pitstop.restore(run, newest)) == []


def test_a_save_starts_no_process_that_could_live_on(run):
    state = state_of(1, 16 * MIB)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        handle = checkpointer.save(1, state)
        seen = set()
        while True:
            over = handle.done()
            for children in Path("/proc/self/task").glob("*/children"):
                # A thread may end before its file is read.
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    seen.update(children.read_text().split())
            if over:
                break
    assert not seen


# "Saves started back to back: earlier steps hold a torn mix of later values; or each call takes another copy
# of the whole state."


@pytest.mark.parametrize("deferred", [False, True])
def test_saves_back_to_back_are_not_torn_and_take_one_copy(run, deferred):
    nbytes = 8 * MIB
    state = known.blank(nbytes)
    with pitstop.AsyncCheckpointer(run, incremental=False) as checkpointer:
        most = 0
        for step in range(1, 9):
            known.change(state, step)
            handle = checkpointer.save(step, state, deferred=deferred)
            most = max(most, sum(checkpointer.memory().values()))
            handle.wait_snapshot()
        checkpointer.wait()
        assert most <= nbytes + 4 * MIB
    for step in range(1, 9):
        back = pitstop.restore(run, step)
        assert back["step"] == step
        assert known.wrong(back) == []


# "Tensors over 128 MB are written live, so that values from after the call were saved, without an error."


def test_a_large_array_is_saved_as_it_was_at_the_call(run):
    large = np.ones(18 * MIB)  # 151 MB
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        handle = checkpointer.save(1, {"w": large})
        large.fill(2)
        handle.result()
        large.fill(1)
        assert_same({"w": large}, checkpointer.restore(1))


# "fsync is called while the bytes are still in a buffer, or never; the directory is not synced after the last
# rename. The temporary file lies in $TMPDIR, so that its rename is a copy."


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
def test_everything_is_synced_before_its_name_and_the_name_before_the_report(run, tmp_path):
    trace = tmp_path / "trace"
    process = child.start(
        """
        import os, subprocess, sys, time, numpy as np, pitstop
        with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
            strace = ["strace", "-f", "-y", "-o", sys.argv[2], "-p", str(os.getpid())]
            strace += ["-e", "trace=write,pwrite64,fsync,fdatasync,rename,renameat,renameat2"]
            tracer = subprocess.Popen(strace, stderr=subprocess.PIPE, text=True)
            if "attached" not in tracer.stderr.readline():
                print("not permitted")
                sys.exit()
            state = {"model": {"w": np.ones(1 << 18)}, "rest": {"n": np.ones(3)}}
            checkpointer.save(1, state).result()
            os.write(1, b"reported\\n")
            tracer.terminate()
            tracer.wait()
        """,
        run,
        trace,
    )
    code, output, errors = child.end(process)
    assert code == 0, errors
    if output == "not permitted\n":
        pytest.skip("tracing is not permitted here")
    calls = [line for line in map(str.strip, trace.read_text().splitlines()) if "resumed>" not in line]
    renamed = last(calls, r"rename.*/\.tmp-step-1-.*step-1\"")
    for name in ("model.safetensors", "rest.safetensors", "manifest.json"):
        written = last(calls, rf"write.*\.tmp-step-1-[^/]*/{re.escape(name)}>")
        synced = first(calls, rf"f(data)?sync\(.*\.tmp-step-1-[^/]*/{re.escape(name)}>")
        assert written < synced < renamed
    assert first(calls, r"fsync\(.*\.tmp-step-1-[^/>]*>") < renamed
    parent = [at for at, call in enumerate(calls) if re.search(rf"fsync\(\d+<{re.escape(str(run))}>", call)]
    reported = last(calls, r"write\(1<.*reported")
    assert any(renamed < at < reported for at in parent)


def first(calls, pattern):
    return next(at for at, call in enumerate(calls) if re.search(pattern, call))


def last(calls, pattern):
    return max(at for at, call in enumerate(calls) if re.search(pattern, call))


def test_nothing_goes_through_the_temporary_directory(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not there"))
    output = child.run(
        """
        import os, sys, numpy as np, pitstop
        with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
            checkpointer.save(1, {"w": np.ones(1 << 18)}).result()
        print(os.path.exists(os.environ["TMPDIR"]))
        """,
        run,
    )
    assert output == "False\n"
    assert disk.whole_steps(run) == [1]


# "A file descriptor a tensor: over about 1,000 tensors it fails with the usual limit."


def test_many_tensors_need_few_file_descriptors(run):
    output = child.run(
        """
        import resource, sys, numpy as np, pitstop
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        state = {"model": {f"w{number}": np.full(3, number) for number in range(5000)}}
        with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
            for step in (1, 2):
                checkpointer.save(step, state).result()
            back = checkpointer.restore(2)
        print(all((back["model"][f"w{number}"] == number).all() for number in range(5000)))
        """,
        run,
    )
    assert output == "True\n"
