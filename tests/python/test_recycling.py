"""What is read from a checkpoint stays, whatever becomes of its files."""

import numpy as np
import pitstop
import pytest


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_mapped_checkpoint_keeps_its_values_while_later_saves_recycle(tmp_path, where):
    with pitstop.AsyncCheckpointer(tmp_path / "run", retention=pitstop.KeepLast(1)) as checkpointer:

        def save(step):
            state = {"a": np.full(400_000, step), "b": {"w": np.full((3, 100_000), -step)}}
            checkpointer.save(step, state).result()

        save(1)
        if where == "inside":
            mapped = checkpointer.restore(1, mmap=True)
        else:
            mapped = pitstop.restore(tmp_path / "run", 1, mmap=True)
        for step in range(2, 7):
            save(step)
        assert checkpointer.steps() == [6]
        # Looked at only now: not one page was loaded before.
        assert (mapped["a"] == 1).all()
        assert (mapped["b"]["w"] == -1).all()
        assert (checkpointer.restore(framework="numpy")["a"] == 6).all()


def test_nothing_waits_after_closing(tmp_path):
    checkpointer = pitstop.AsyncCheckpointer(tmp_path / "run", retention=pitstop.KeepLast(1))
    for step in (1, 2):
        checkpointer.save(step, {"a": np.full(400_000, step)}).result()
    checkpointer.close()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock", "step-2"]
