"""Restoring: which bytes are read, what memory the result takes, and who may go on meanwhile."""

import gc
import os
import signal
import threading
import time

import child
import numpy as np
import pitstop
import pytest

linux = pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="Linux counts it")


def bytes_read():
    """Bytes that this process has read from files so far."""
    with open("/proc/self/io") as counts:
        return int(counts.readline().split()[1])


@pytest.fixture
def mixed_run(run):
    """32 MiB in 8 large arrays, with small ones between them."""
    large = {f"large{i}": np.full(1 << 19, i, dtype=np.float64) for i in range(8)}
    small = {f"small{i}": np.arange(i, dtype=np.int32) for i in range(500)}
    pitstop.save(run, {"model": large | small})
    return run


@linux
def test_only_reads_the_bytes_it_needs(mixed_run):
    everything = sum(file.stat().st_size for file in mixed_run.rglob("*.safetensors"))
    manifest = next(mixed_run.rglob("manifest.json")).stat().st_size
    pitstop.restore(mixed_run)
    before = bytes_read()
    pitstop.restore(mixed_run)
    whole = bytes_read() - before
    assert everything <= whole < everything + (1 << 20)
    before = bytes_read()
    back = pitstop.restore(mixed_run, only=["*.large3", "*.small7?"])
    needed = back["model"]["large3"].nbytes + sum(range(70, 80)) * 4
    # The rest is the manifest, which is read again to see that it is still the same one, and the header.
    assert needed <= bytes_read() - before < needed + 4 * manifest + (64 << 10)
    assert set(back["model"]) == {"large3", *(f"small{i}" for i in [7, *range(70, 80)])} - {"small7"}


@linux
def test_a_fresh_result_is_read_once_and_a_filled_one_twice(mixed_run):
    target = pitstop.restore(mixed_run)
    size = sum(array.nbytes for array in target["model"].values())
    for into, times in ((None, 1), (target, 2)):
        before = bytes_read()
        pitstop.restore(mixed_run, into=into)
        assert times * size <= bytes_read() - before < times * size + (1 << 20)


@linux
def test_each_array_gives_its_memory_back_by_itself(tmp_path):
    """Arrays lie side by side on huge pages; one that is kept must not keep its neighbours."""
    output = child.run(
        """
        import sys, numpy as np, pitstop
        def resident():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))
        pitstop.save(sys.argv[1], {f"w{i}": np.full(3 << 20, i, dtype=np.float64) for i in range(8)})
        before = resident()
        state = pitstop.restore(sys.argv[1])
        whole = resident() - before
        kept = state.pop("w5")
        state.clear()
        part = resident() - before
        assert (kept == 5).all()
        kept += 1
        print(whole, part)
        """,
        tmp_path / "run",
    )
    whole, part = map(int, output.split())
    assert 8 * 24 - 16 < whole < 8 * 24 + 16, "MiB for the whole state"
    assert part < 24 + 16, "MiB for one array of 24"


def test_arrays_are_aligned_and_apart(mixed_run):
    arrays = list(pitstop.restore(mixed_run)["model"].values())
    assert all(array.ctypes.data % 64 == 0 for array in arrays if array.nbytes)
    for array in arrays:
        array[...] = 0
    assert all((array == 0).all() for array in arrays)
    again = pitstop.restore(mixed_run)["model"]
    assert (again["large7"] == 7).all()
    assert (again["small499"] == np.arange(499)).all()


def test_the_garbage_collector_is_left_as_it_was(mixed_run):
    pitstop.restore(mixed_run)
    assert gc.isenabled()
    with pytest.raises(pitstop.errors.StateMismatchError):
        pitstop.restore(mixed_run, like={"other": None})
    assert gc.isenabled()
    gc.disable()
    try:
        pitstop.restore(mixed_run)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_ctrl_c_while_arrays_are_filled_ends_it_and_nobody_writes_on(run):
    """Filling used to go on to its end without a look at signals."""
    size = 48 << 20
    pitstop.save(run, {"w": np.ones(size)})
    target = {"w": np.empty(size)}

    def stop_half_way(*_):
        if target["w"][0] == 1 and target["w"][-1] == 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop_half_way)
    try:
        for _ in range(10):
            target["w"][:] = 0
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            try:
                pitstop.restore(run, into=target)
            except KeyboardInterrupt:
                break
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        else:
            pytest.fail("no signal was heard while the array was filled")
        assert threading.active_count() == 1
        filled = np.count_nonzero(target["w"])
        time.sleep(0.1)
        assert np.count_nonzero(target["w"]) == filled < size
    finally:
        signal.signal(signal.SIGALRM, before)
