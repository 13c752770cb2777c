"""Faults of a real kernel: full and failing file systems, limits, permissions, directories that go away.

After each: the error came once, with the right number and path; what was saved before is as it was; the room
is given back; and the same checkpointer saves again once the fault is gone. Also see test_errors.py.
"""

import contextlib
import errno
import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import child
import disk
import known
import numpy as np
import pitstop
import pytest
import volatile
from same import assert_same

MIB = 1 << 20
SIZES = {"ext4": 24 * MIB, "xfs": 320 * MIB, "btrfs": 128 * MIB}


@contextlib.contextmanager
def file_system(kind, tmp_path, **how):
    """A file system of its own, and its device; skips where that is not permitted."""
    if kind == "tmpfs":
        with disk.small(tmp_path / "disk", "24m") as directory:
            yield directory, None
        return
    with contextlib.ExitStack() as stack:
        try:
            mounted = stack.enter_context(volatile.plain(tmp_path, kind, SIZES[kind], **how))
        except volatile.NotPermittedError as error:
            pytest.skip(f"mounting {kind} is not permitted here: {error}")
        yield mounted


def state_of(step, nbytes=200_000):
    state = known.blank(nbytes)
    known.change(state, step)
    return state


def free(directory):
    os.sync() if directory.is_mount() else None
    return shutil.disk_usage(directory).free


def assert_fails_once(checkpointer, run, step, state, *numbers, **how):
    """The save fails with one of these numbers and a path in the run, and nothing is raised again."""
    with pytest.raises(pitstop.SaveError, match="Error when saving the state") as caught:
        checkpointer.save(step, state, **how).result()
    cause = caught.value.__cause__
    assert cause.errno in numbers, caught.value
    assert str(cause.filename).startswith(str(run))
    checkpointer.check()
    checkpointer.wait()


def failure_of(handle):
    """The error of the system that a save failed with, or None."""
    try:
        handle.result()
    except pitstop.SaveError as error:
        return error.__cause__
    return None


def assert_intact(run, *steps):
    assert disk.whole_steps(run) == [*steps]
    for step in steps:
        assert known.wrong(pitstop.restore(run, step)) == []
    assert disk.hidden(run) == {".lock"}


def fill_up(filler, leave):
    """Makes a file of all the room there is but `leave` bytes."""
    with open(filler, "wb") as file:
        size, chunk = 0, 16 * MIB
        while chunk >= 1024:
            try:
                os.posix_fallocate(file.fileno(), size, chunk)
                size += chunk
            except OSError:
                chunk //= 2
        file.truncate(max(size - leave, 0))


@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs", "btrfs"])
def test_a_full_file_system_is_told_once_and_its_room_comes_back(tmp_path, kind):
    with file_system(kind, tmp_path) as (mount, _):
        run = mount / "run"
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(1, state_of(1)).result()
            before = free(mount)
            state = state_of(2, before + 4 * MIB)
            for _ in range(3):
                assert_fails_once(checkpointer, run, 2, state, errno.ENOSPC)
                assert_intact(run, 1)
            del state
            deadline = time.monotonic() + 20
            while free(mount) < before - 512 * 1024 and time.monotonic() < deadline:
                time.sleep(0.1)  # XFS frees what was removed in the background
            assert free(mount) >= before - 512 * 1024
            checkpointer.save(3, state_of(3, 6 * MIB)).result()
            assert_intact(run, 1, 3)


def test_a_file_system_that_fills_up_at_any_point_of_a_save(tmp_path):
    """The room left grows by one block at a time, so that each file and the manifest is once what fails."""
    with file_system("ext4", tmp_path, make=("-m", "0")) as (mount, _):
        run, filler = mount / "run", mount / "filler"
        outcomes = []
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(0, state_of(0, 30_000)).result()
            saved = [0]
            for step in range(1, 26):
                fill_up(filler, leave=(step - 1) * 16384)
                metadata = {"long": "x" * 20_000}  # a manifest of some blocks
                error = failure_of(checkpointer.save(step, state_of(step, 30_000), metadata=metadata))
                if error is None:
                    saved.append(step)
                else:
                    assert error.errno == errno.ENOSPC
                    outcomes.append(Path(error.filename).name)
                assert_intact(run, *saved)
                filler.unlink()
                checkpointer.check()
        assert len(saved) > 1
        assert "manifest.json" in outcomes
        assert any(name.endswith(".safetensors") for name in outcomes)


def test_a_file_system_without_inodes(tmp_path):
    with file_system("ext4", tmp_path, make=("-N", "64")) as (mount, _):
        run = mount / "run"
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(1, state_of(1)).result()
            taken = 0
            with contextlib.suppress(OSError):
                while True:
                    (mount / f"taken-{taken}").touch()
                    taken += 1
            (mount / "taken-0").unlink()
            (mount / "taken-1").unlink()
            assert_fails_once(checkpointer, run, 2, state_of(2), errno.ENOSPC)
            assert_intact(run, 1)
            for number in range(2, taken):
                (mount / f"taken-{number}").unlink()
            checkpointer.save(2, state_of(2)).result()
            assert_intact(run, 1, 2)


def test_a_quota(tmp_path):
    with file_system("btrfs", tmp_path) as (mount, _):
        run = mount / "run"
        try:
            volatile.command("btrfs", "subvolume", "create", run)
            volatile.command("btrfs", "quota", "enable", mount)
            volatile.command("btrfs", "qgroup", "limit", "8M", run)
        except volatile.CommandError as error:
            pytest.skip(f"quotas are not permitted here: {error}")
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(1, state_of(1)).result()
            for _ in range(2):
                assert_fails_once(checkpointer, run, 2, state_of(2, 20 * MIB), errno.EDQUOT)
                assert_intact(run, 1)
            volatile.command("btrfs", "qgroup", "limit", "none", run)
            checkpointer.save(2, state_of(2, 20 * MIB)).result()
            assert_intact(run, 1, 2)


def test_a_file_system_that_gave_up(tmp_path):
    """ext4 makes itself read-only when its disk misbehaves, until it is mounted anew."""
    with file_system("ext4", tmp_path, make=("-e", "remount-ro")) as (mount, device):
        run = mount / "run"
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(1, state_of(1)).result()
            volatile.command("mount", "-o", "remount,abort", mount)
            for _ in range(2):
                assert_fails_once(checkpointer, run, 2, state_of(2), errno.EROFS, errno.EIO)
            assert known.wrong(checkpointer.restore()) == []
            assert known.wrong(pitstop.restore(run, 1)) == []
        volatile.command("umount", mount)
        volatile.command("mount", device, mount)
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(3, state_of(3)).result()
        assert_intact(run, 1, 3)


@pytest.mark.parametrize("direct_io", ["1", "0"])
def test_a_disk_whose_writes_fail(tmp_path, direct_io):
    """What cannot be synced is not reported as saved; what was before outlives the trouble."""
    simulated = volatile.Disk(tmp_path, "ext4", 64 * MIB)
    with contextlib.ExitStack() as stack:
        try:
            mount = stack.enter_context(simulated.in_use())
        except volatile.NotPermittedError as error:
            pytest.skip(f"a disk that fails on demand is not permitted here: {error}")
        run = mount / "run"
        process = child.start(
            """
            import os, sys
            os.environ["PITSTOP_DIRECT_IO"] = sys.argv[2]
            import errno, known, pitstop
            state = known.blank(8 << 20)
            with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
                known.change(state, 1)
                checkpointer.save(1, state).result()
                print("saved", flush=True)
                sys.stdin.readline()
                known.change(state, 2)
                for _ in range(2):
                    try:
                        checkpointer.save(2, state).result()
                        print("reported as saved")
                    except pitstop.SaveError as error:
                        print(errno.errorcode[error.__cause__.errno])
                checkpointer.check()
            print("end", flush=True)
            sys.stdin.readline()
            """,
            run,
            direct_io,
        )
        child.read_until(process, "saved")
        with simulated.failing():
            process.stdin.write("\n")
            process.stdin.flush()
            outcomes = child.read_until(process, "end")
        assert len(outcomes) == 3
        assert set(outcomes[:2]) <= {"EIO", "EROFS"}, outcomes
        child.end(process)
    # The machine is switched off and on again.
    image = tmp_path / "image"
    with volatile.loop(image) as device, volatile.mounted(device, tmp_path / "mounted") as mount:
        with pitstop.AsyncCheckpointer(mount / "run") as checkpointer:
            assert checkpointer.steps() == [1]
            checkpointer.save(2, state_of(2)).result()
        assert_intact(mount / "run", 1, 2)


def test_a_limit_on_the_size_of_files_does_not_kill_a_process_that_dies_of_it(run):
    """The system sends SIGXFSZ, and Python's habit of ignoring it is not everybody's."""
    output = child.run(
        """
        import errno, resource, signal, sys
        import numpy as np, pitstop
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        with pitstop.AsyncCheckpointer(sys.argv[1], retention=pitstop.KeepLast(1)) as checkpointer:
            for step in (1, 2, 3):  # from then on files are recycled, where they can be
                checkpointer.save(step, {"w": np.full(1 << 18, float(step))}).result()
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
            try:
                checkpointer.save(4, {"w": np.full(1 << 18, 4.0)}).result()
            except pitstop.SaveError as error:
                cause = error.__cause__
                print(errno.errorcode[cause.errno], cause.filename.startswith(sys.argv[1]))
            checkpointer.check()
            checkpointer.save(5, {"w": np.full(1 << 10, 5.0)}).result()
        """,
        run,
    )
    assert output.strip() == "EFBIG True"
    assert disk.whole_steps(run) == [5]


UNPRIVILEGED = """
    import errno, os, sys
    import numpy as np, pitstop
    run = sys.argv[1]
    os.setgid(65534)
    os.setuid(65534)
    state = {"w": np.ones(1000)}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state).result()
        os.chmod(run, 0o555)
        for _ in range(2):
            try:
                checkpointer.save(2, state).result()
            except pitstop.SaveError as error:
                print(errno.errorcode[error.__cause__.errno], error.__cause__.filename.startswith(run))
        checkpointer.check()
        print(checkpointer.steps(), pitstop.restore(run)["w"].sum())
        os.chmod(run, 0o755)
        checkpointer.save(3, state).result()
        print(checkpointer.steps())
    os.chmod(run, 0)
    try:
        pitstop.AsyncCheckpointer(run)
    except PermissionError as error:
        print(error.filename.startswith(run))
    try:
        pitstop.AsyncCheckpointer("/proc/1/run")
    except OSError as error:
        print(error.filename)
    os.chmod(run, 0o755)
"""


def test_a_directory_that_is_closed_to_an_ordinary_user():
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory(prefix="pitstop-") as directory:
        os.chmod(directory, 0o777)
        lines = child.run(UNPRIVILEGED, Path(directory) / "run").splitlines()
    assert lines == ["EACCES True", "EACCES True", "[1] 1000.0", "[1, 3]", "True", "/proc/1/run"]


@pytest.mark.parametrize("attempt", range(4))
def test_a_run_that_is_renamed_under_a_running_save(run, tmp_path, attempt):
    away = tmp_path / "away"
    state = state_of(2, 16 * MIB)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state_of(1)).result()
        handle = checkpointer.save(2, state)
        while handle.progress()[0] < attempt * 5 * MIB and not handle.done():
            pass
        run.rename(away)
        saved = [1]
        error = failure_of(handle)
        if error is None:
            saved.append(2)
        else:
            assert error.errno == errno.ENOENT
            assert str(error.filename).startswith(str(run))
        checkpointer.check()
        assert disk.whole_steps(away) == saved
        away.rename(run)
        checkpointer.save(3, state_of(3)).result()
    with pitstop.AsyncCheckpointer(run):
        pass  # what the failed save had to leave under the other name is swept
    assert_intact(run, *saved, 3)


def test_checkpoints_removed_by_hand_while_retention_prunes(run):
    """A hidden directory stayed behind until the next open, since a file in it was gone already; and once
    the last checkpoint of all was pruned while the one to keep was on its way out."""
    over = threading.Event()

    def remove():
        while not over.is_set():
            for path in run.glob("step-*"):
                shutil.rmtree(path, ignore_errors=True)
                break

    rule = pitstop.KeepBest("loss")
    with pitstop.AsyncCheckpointer(run, retention=rule, fsync=False) as checkpointer:
        thread = threading.Thread(target=remove)
        thread.start()
        try:
            for step in range(200):
                state = {f"w{number}": {"a": np.full(10, step)} for number in range(20)}
                checkpointer.save(step, state, metrics={"loss": step % 7})
            checkpointer.wait()
        finally:
            over.set()
            thread.join()
        checkpointer.save(1000, {"n": 1}, metrics={"loss": 0}).result()
        hidden = disk.hidden(run)
        assert hidden == {".lock"}
        assert pitstop.restore(run)


def test_no_memory_for_a_snapshot(run):
    """The system has no memory for the copy: that is told like any other failure, and the next save works."""
    output = child.run(
        """
        import errno, resource, sys
        import numpy as np, pitstop
        small, large = {"w": np.ones(1000)}, {"w": np.ones(32 << 20)}
        with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
            checkpointer.save(1, small).result()
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
            try:
                checkpointer.save(2, large).result()
            except pitstop.SaveError as error:
                print(errno.errorcode[error.__cause__.errno])
            checkpointer.check()
            checkpointer.save(3, small).result()
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            checkpointer.save(4, large).result()
            print(checkpointer.steps())
        """,
        run,
    )
    assert output.splitlines() == ["ENOMEM", "[1, 3, 4]"]
    assert_same({"w": np.ones(1000)}, pitstop.restore(run, 1))


def test_a_signal_storm_does_not_fail_a_save(run):
    """Calls of the system that a signal cuts short are made again."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2)) as checkpointer:
            for step in range(1, 6):
                checkpointer.save(step, state_of(step, 8 * MIB)).result()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert_intact(run, 4, 5)
