"""Records of the core arrive at Python's ``logging`` when Python calls in."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import disk
import numpy as np
import pitstop
import pytest

CAPACITY = 1024

# Each checkpoint passed over is told twice: as a record, and as a warning for those who log nothing.
pytestmark = pytest.mark.filterwarnings("ignore::pitstop.CheckpointWarning")


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[pitstop.AsyncCheckpointer]:
    """A checkpointer elsewhere, to call in with; the queue is empty before and after."""
    with pitstop.AsyncCheckpointer(tmp_path / "elsewhere") as checkpointer:
        checkpointer.check()
        caplog.clear()
        yield checkpointer
        logging.getLogger("pitstop").setLevel(logging.NOTSET)
        checkpointer.check()


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def add_damaged(run: Path, *steps: int) -> None:
    """Checkpoints whose manifest is none."""
    for step in steps:
        (run / f"step-{step}").mkdir(parents=True)
        (run / f"step-{step}" / "manifest.json").write_text("damaged")


def passed_over(run: Path, step: int) -> str:
    return f"checkpoint passed over: {run / f'step-{step}' / 'manifest.json'}: it is cut off"


def end_of(handle: pitstop.SaveHandle) -> None:
    """Waits for the worker without a call that hands records over."""
    deadline = time.monotonic() + 20
    while not handle.done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def save_what_retention_would_delete(run: Path) -> pitstop.AsyncCheckpointer:
    """The worker warns: the rule keeps nothing but a damaged checkpoint."""
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"w": np.ones(1000)})
    (tensors,) = (run / "step-1").glob("*.safetensors")
    disk.flip(tensors, tensors.stat().st_size - 5)
    checkpointer = pitstop.AsyncCheckpointer(run, retention=lambda checkpoints: [1])
    end_of(checkpointer.save(2, {"w": np.zeros(1000)}))
    return checkpointer


def test_a_record_of_the_worker_waits_until_python_calls_in(
    run: Path, outside: pitstop.AsyncCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = save_what_retention_would_delete(run)
    before = time.time()
    time.sleep(0.05)
    assert caplog.records == []
    # Whichever checkpointer is called next hands it over.
    outside.check()
    [record] = caplog.records
    assert record.name == "pitstop.file_checkpointer.prune"
    assert record.levelname == "WARNING"
    assert record.getMessage() == "step 2 stays, since none of the checkpoints to keep is intact"
    assert record.threadName is not None
    assert record.threadName.startswith("pitstop")
    assert record.created <= before
    assert record.filename == "prune.rs"
    checkpointer.close()
    assert len(caplog.records) == 1


def test_a_checkpoint_passed_over_is_told_before_the_restore_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "100 % s"
    pitstop.save(run, {"w": 1}, step=1)
    add_damaged(run, 2, 3)
    assert pitstop.restore(run) == {"w": 1}
    assert messages(caplog) == [passed_over(run, 3), passed_over(run, 2)]
    assert {record.name for record in caplog.records} == {"pitstop.file_checkpointer.run"}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_file_that_cannot_be_linked_is_news_and_no_warning(
    run: Path, outside: pitstop.AsyncCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"w": np.arange(1 << 17)}
    with caplog.at_level(logging.INFO, "pitstop"), pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, state).result()
        (tensors,) = (run / "step-1").glob("*.safetensors")
        os.truncate(tensors, 10)
        checkpointer.save(2, state).result()
        outside.check()
        [record] = caplog.records
        assert record.levelname == "INFO"
        assert record.getMessage().startswith(
            "unchanged files are written anew, since one could not be linked"
        )
        assert str(tensors) in record.getMessage()
    assert np.array_equal(pitstop.restore(run, 2)["w"], state["w"])


def test_where_files_cannot_be_linked_no_more_attempts_are_made_and_a_warning_says_so(
    run: Path, outside: pitstop.AsyncCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    """Without hard links, or lasting inode numbers, `incremental` did nothing, and nobody was told."""
    state = {"w": np.arange(1 << 17)}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in range(1, 6):
            checkpointer.save(step, state).result()
            (tensors,) = (run / f"step-{step}").glob("*.safetensors")
            # What was written in the last of these steps could be linked, but nobody tries any more.
            if step < 4:
                os.truncate(tensors, 10)
        stats = checkpointer.stats()
    outside.check()
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "since they cannot be linked" in record.getMessage()
    assert "`incremental`" in record.getMessage()
    assert stats.bytes_linked == 0
    assert np.array_equal(pitstop.restore(run, 5)["w"], state["w"])


def test_a_file_that_could_not_be_linked_now_and_then_turns_nothing_off(run: Path) -> None:
    state = {"w": np.arange(1 << 17)}
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        for step in range(1, 8):
            checkpointer.save(step, state).result()
            if step % 2:
                (tensors,) = (run / f"step-{step}").glob("*.safetensors")
                os.truncate(tensors, 10)
        linked = [save.bytes_linked > 0 for save in checkpointer.stats().saves]
    assert linked == [False, False, True, False, True, False, True]


def test_a_failure_of_a_checkpointer_that_is_dropped_is_an_error(
    run: Path, outside: pitstop.AsyncCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = pitstop.AsyncCheckpointer(run)
    with disk.replaced_by_a_file(run):
        end_of(checkpointer.save(1, {"w": 1}))
        del checkpointer
    outside.check()
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("Error when saving the state: I/O Error: `")


def test_a_failure_that_was_raised_is_not_logged_as_well(
    run: Path, outside: pitstop.AsyncCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = pitstop.AsyncCheckpointer(run)
    with disk.replaced_by_a_file(run):
        checkpointer.save(1, {"w": 1})
        with pytest.raises(pitstop.SaveError):
            checkpointer.wait()
    del checkpointer
    outside.check()
    assert caplog.records == []


def test_below_a_warning_nothing_is_queued_that_nobody_wants(
    run: Path, outside: pitstop.AsyncCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    add_damaged(run, 1)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.steps()
        with caplog.at_level(logging.DEBUG, "pitstop"):
            outside.check()
            assert caplog.records == []
            checkpointer.steps()
            outside.check()
            assert [record.levelname for record in caplog.records] == ["DEBUG"]
        outside.check()
        checkpointer.steps()
        with caplog.at_level(logging.DEBUG, "pitstop"):
            outside.check()
    assert len(caplog.records) == 1


def test_a_logger_that_is_quieter_gets_less(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    pitstop.save(run, {"w": 1}, step=1)
    add_damaged(run, 2)
    with caplog.at_level(logging.ERROR, "pitstop.file_checkpointer"):
        pitstop.restore(run)
    assert caplog.records == []
    pitstop.restore(run)
    assert messages(caplog) == [passed_over(run, 2)]


def test_too_many_records_drop_the_oldest_and_count_them(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    pitstop.save(run, {"w": 1}, step=0)
    add_damaged(run, *range(1, CAPACITY + 4))
    pitstop.restore(run)
    assert messages(caplog) == [
        "3 older log records were dropped",
        *(passed_over(run, step) for step in range(CAPACITY, 0, -1)),
    ]


def test_a_filter_that_raises_is_heard_and_hides_no_other_record(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def picky(record: logging.LogRecord) -> bool:
        if "step-4" in record.getMessage():
            raise ZeroDivisionError("mine")
        return True

    pitstop.save(run, {"w": 1}, step=1)
    add_damaged(run, 2, 3, 4)
    logger = logging.getLogger("pitstop.file_checkpointer.run")
    logger.addFilter(picky)
    try:
        with pytest.raises(ZeroDivisionError, match="mine"):
            pitstop.restore(run)
    finally:
        logger.removeFilter(picky)
    assert messages(caplog) == [passed_over(run, 3), passed_over(run, 2)]


def test_a_handler_may_call_in_again(
    run: Path, outside: pitstop.AsyncCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    class Nosy(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            outside.check()

    pitstop.save(run, {"w": 1}, step=1)
    add_damaged(run, 2, 3)
    handler = Nosy()
    logging.getLogger("pitstop").addHandler(handler)
    try:
        pitstop.restore(run)
    finally:
        logging.getLogger("pitstop").removeHandler(handler)
    assert messages(caplog) == [passed_over(run, 3), passed_over(run, 2)]
