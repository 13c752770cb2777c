"""What looks like a checkpoint of that step and is something else is neither damaged nor ours to replace."""

import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import child
import disk
import numpy as np
import pitstop
import pytest
import xxhash


def save(run, step, value):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(step, {"model": {"w": np.full(3, float(value))}})


def with_edited_manifest(checkpoint, edit):
    """Changes the manifest and gives it the checksum that belongs to it, as a newer writer would."""
    path = checkpoint / "manifest.json"
    rest = edit(path.read_bytes().split(b"\n", 1)[1])
    assert len(rest) <= 64 * 1024  # one block, so the checksum is a plain XXH3-128
    path.write_bytes(b'{"checksum":"%s",\n' % xxhash.xxh3_128(rest).hexdigest().encode() + rest)


def test_a_newer_format_is_never_passed_over_or_replaced(run):
    # Resuming the step before and saving over the newer one lost a checkpoint that was in order.
    for step in (1, 2):
        save(run, step, step)
    with_edited_manifest(run / "step-2", lambda text: text.replace(b'"version":1', b'"version":2'))
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        target = {"model": {"w": np.zeros(3)}}
        with pytest.raises(pitstop.CheckpointError, match="newer"):
            checkpointer.resume(into=target)
        assert (target["model"]["w"] == 0).all()
        with pytest.raises(pitstop.StepExistsError):
            checkpointer.save(2, {"model": {"w": np.zeros(3)}})


def test_a_renamed_step_is_not_replaced(run):
    # Its directory was taken for a damaged checkpoint of step 700, and saving step 700 destroyed step 500.
    save(run, 500, 5)
    (run / "step-500").rename(run / "step-700")
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        with pytest.raises(pitstop.CheckpointError, match="it holds step 500"):
            checkpointer.restore(700)
        with pytest.raises(pitstop.StepExistsError):
            checkpointer.save(700, {"model": {"w": np.zeros(3)}})
    assert (pitstop.restore(run / "step-700")["model"]["w"] == 5).all()


def test_a_directory_that_is_no_checkpoint_is_not_replaced_even_on_request(run):
    (run / "step-7").mkdir(parents=True)
    (run / "step-7" / "notes.txt").write_text("mine")
    with pitstop.AsyncCheckpointer(run) as checkpointer, pytest.raises(pitstop.SaveError):
        checkpointer.save(7, {"w": 1}, overwrite=True).result()
    assert (run / "step-7" / "notes.txt").read_text() == "mine"
    assert not disk.leftovers(run)


@pytest.mark.parametrize("name", ["single", "run/step-1"])
def test_a_checkpoint_is_not_opened_as_a_run(tmp_path, run, name):
    # It was, and had no steps: training began from zero without a word.
    save(run, 1, 1)
    pitstop.save(tmp_path / "single", {"w": np.ones(3)})
    path = tmp_path / name
    before = disk.everything(path)
    with pytest.raises(OSError, match="one checkpoint; name the directory of its run"):
        pitstop.AsyncCheckpointer(path)
    with pytest.raises(pitstop.SaveError, match="one checkpoint; name the directory of its run"):
        pitstop.save(path, {"w": np.ones(3)}, step=2)
    assert disk.everything(path) == before


def test_a_damaged_step_may_be_saved_again(run):
    # A run that fell back to an older step reaches the damaged one again.
    for step in (1, 2):
        save(run, step, step)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        disk.flip(run / "step-2" / "model.safetensors", 4100)
        with pytest.warns(UserWarning, match="step-2"):
            assert checkpointer.resume(into={"model": {"w": np.zeros(3)}}) == 1
        checkpointer.save(2, {"model": {"w": np.full(3, 9.0)}}).result()
    assert (pitstop.restore(run, 2)["model"]["w"] == 9).all()


def test_what_a_killed_single_save_left_goes_with_the_next_one(tmp_path):
    program = """
        import sys, numpy as np, pitstop
        print("ready", flush=True)
        while True:
            pitstop.save(sys.argv[1], {"w": np.zeros(4 << 20)}, overwrite=True)
    """
    target = tmp_path / "single"
    for _ in range(3):
        process = child.start(program, target)
        child.read_until(process, "ready")
        while not any(path.name.startswith(".tmp-") for path in tmp_path.iterdir()):
            pass
        process.send_signal(signal.SIGKILL)
        child.end(process)
    pitstop.save(target, {"w": np.ones(3)}, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["single"]
    shutil.rmtree(target)


def test_running_out_of_file_descriptors_is_not_damage(run):
    # With none left every checkpoint looked damaged, and saving such a step replaced one that was in order.
    program = """
        import os, resource, sys, numpy as np, pitstop
        run = sys.argv[1]
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            checkpointer.save(1, {"w": np.ones(3)}).result()
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
            taken = []
            try:
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
            try:
                checkpointer.restore(1)
            except OSError as error:
                print("restore", error.errno)
            try:
                checkpointer.save(1, {"w": np.zeros(3)})
            except pitstop.SaveError as error:
                print("save", error.__cause__.errno)
            for number in taken:
                os.close(number)
            try:
                checkpointer.save(1, {"w": np.zeros(3)})
            except pitstop.StepExistsError:
                print("it is still there")
    """
    printed = child.run(program, run).split("\n")
    assert printed[:3] == ["restore 24", "save 24", "it is still there"]
    assert (pitstop.restore(run, 1)["w"] == 1).all()


def test_a_reader_beside_a_writer_always_finds_a_checkpoint(run):
    # With KeepLast(1) the one that was listed was gone when it was opened, and a run began from scratch.
    stop = threading.Event()

    def write():
        with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(1), fsync=False) as checkpointer:
            step = 2
            while not stop.is_set():
                checkpointer.save(step, {"step": step, "w": np.full(1000, float(step))})
                step += 1

    save(run, 1, 1)
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            for _ in range(300):
                back = pitstop.restore(run)
                assert "step" not in back or (back["w"] == back["step"]).all()
                assert pitstop.checkpoints(run)
        finally:
            stop.set()
            writer.result()


@pytest.mark.parametrize(
    "how", [{}, {"mmap": True}, {"verify": False}], ids=["verified", "mmap", "unverified"]
)
def test_a_reader_never_mixes_two_checkpoints_of_one_step(run, how):
    # The manifest was that of the one before, and the files those of the one that had just replaced it.
    stop = threading.Event()

    def write():
        with pitstop.AsyncCheckpointer(run, fsync=False) as checkpointer:
            number = 1
            while not stop.is_set():
                state = {"n": number, "m": {"w": np.full(1000, float(number))}}
                checkpointer.save(7, state, overwrite=True)
                number += 1

    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(7, {"n": 0, "m": {"w": np.zeros(1000)}})
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            for _ in range(500):
                back = pitstop.restore(run, 7, **how)
                assert (back["m"]["w"] == back["n"]).all()
        finally:
            stop.set()
            writer.result()


@pytest.mark.parametrize("how", [{}, {"mmap": True}], ids=["verified", "mmap"])
def test_a_reader_never_mixes_two_checkpoints_of_one_path(tmp_path, how):
    # Files were mapped by name, one after the other: some before the checkpoint was replaced, and some after.
    program = """
        import sys, numpy as np, pitstop
        for number in range(200):
            state = {f"part{i}": {"w": np.full(100, float(number))} for i in range(30)}
            pitstop.save(sys.argv[1], state, overwrite=True, fsync=False)
            if number == 0:
                print("ready", flush=True)
    """
    path = tmp_path / "latest"
    writer = child.start(program, path)
    try:
        child.read_until(writer, "ready")
        while writer.poll() is None:
            parts = pitstop.restore(path, **how)
            assert len({float(part["w"][-1]) for part in parts.values()}) == 1
    finally:
        writer.kill()
        code, _, errors = child.end(writer)
    assert code == 0, errors
