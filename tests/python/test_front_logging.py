"""Records of the core arrive at Python's ``logging`` when Python calls in."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pitstop
import pytest

native = pitstop._native
pytestmark = pytest.mark.skipif(
    not hasattr(native, "probe_log"), reason="the probes are in debug builds only"
)

CAPACITY = 1024


@pytest.fixture(autouse=True)
def empty_queue() -> Iterator[None]:
    native.probe_drain()
    yield
    logging.getLogger("pitstop").setLevel(logging.NOTSET)
    native.probe_drain()


def test_a_record_waits_until_python_calls_in(caplog: pytest.LogCaptureFixture) -> None:
    native.probe_log("warn", "pitstop::commit::publish", "100 % ", elsewhere=True)
    assert caplog.records == []
    before = time.time()
    time.sleep(0.05)
    native.probe_drain()
    [record] = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == (
        "pitstop.commit.publish",
        "WARNING",
        "100 % 0",
    )
    assert record.threadName == "pitstop-probe"
    assert record.created <= before
    assert record.filename == "probe.rs"
    native.probe_drain()
    assert len(caplog.records) == 1


def test_levels_are_python_s(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1, "pitstop"):
        native.probe_drain()
        for level in ("error", "warn", "info", "debug", "trace"):
            native.probe_log(level, "pitstop", level)
        native.probe_drain()
    assert [record.levelno for record in caplog.records] == [40, 30, 20, 10, 5]
    assert {record.name for record in caplog.records} == {"pitstop"}


def test_below_a_warning_nothing_is_queued_that_nobody_wants(caplog: pytest.LogCaptureFixture) -> None:
    native.probe_log("info", "pitstop::storage", "unwanted", times=2 * CAPACITY)
    native.probe_log("warn", "pitstop::storage", "wanted")
    with caplog.at_level(logging.INFO, "pitstop"):
        native.probe_drain()
        assert [record.getMessage() for record in caplog.records] == ["wanted0"]
        native.probe_log("info", "pitstop::storage", "wanted now")
        native.probe_log("debug", "pitstop::storage", "unwanted")
        native.probe_drain()
    assert [record.getMessage() for record in caplog.records] == ["wanted0", "wanted now0"]


def test_a_logger_that_is_quieter_gets_less(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "pitstop.storage"):
        native.probe_log("warn", "pitstop::storage", "unwanted")
        native.probe_log("error", "pitstop::storage", "wanted")
        native.probe_drain()
    assert [record.getMessage() for record in caplog.records] == ["wanted0"]


def test_too_many_records_drop_the_oldest_and_count_them(caplog: pytest.LogCaptureFixture) -> None:
    native.probe_log("warn", "pitstop", "", times=CAPACITY + 3)
    native.probe_drain()
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["3 older log records were dropped", *map(str, range(3, CAPACITY + 3))]


def test_records_of_other_crates_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    native.probe_log("error", "pitstopper", "not ours")
    native.probe_drain()
    assert caplog.records == []


def test_a_filter_that_raises_hides_no_other_record(caplog: pytest.LogCaptureFixture) -> None:
    def picky(record: logging.LogRecord) -> bool:
        if record.getMessage() == "0":
            raise ZeroDivisionError("mine")
        return True

    logger = logging.getLogger("pitstop")
    logger.addFilter(picky)
    try:
        native.probe_log("warn", "pitstop", "", times=3)
        with pytest.raises(ZeroDivisionError, match="mine"):
            native.probe_drain()
    finally:
        logger.removeFilter(picky)
    assert [record.getMessage() for record in caplog.records] == ["1", "2"]


def test_a_handler_may_call_in_again(caplog: pytest.LogCaptureFixture) -> None:
    class Nosy(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            native.probe_drain()

    handler = Nosy()
    logging.getLogger("pitstop").addHandler(handler)
    try:
        native.probe_log("warn", "pitstop", "", times=2)
        native.probe_drain()
    finally:
        logging.getLogger("pitstop").removeHandler(handler)
    assert [record.getMessage() for record in caplog.records] == ["0", "1"]
