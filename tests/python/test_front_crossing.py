"""Whatever goes wrong inside a call arrives as an exception, as it was raised, and stderr stays silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import disk
import pitstop
import pytest


class Asked:
    """An object of the user's whose state is whatever ``answer`` returns or raises."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def state_dict(self) -> Any:
        return self.answer()

    def load_state_dict(self, state: Any) -> None:
        self.answer()


def raising(error: BaseException) -> Any:
    def raise_it() -> None:
        raise error

    return raise_it


ERRORS = [ValueError("mine"), KeyboardInterrupt("mine"), SystemExit(3)]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_what_the_state_raises_passes_through_a_save(
    checkpointer: pitstop.AsyncCheckpointer, error: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(type(error)) as caught:
        checkpointer.save(1, {"model": Asked(raising(error))})
    assert caught.value is error
    assert checkpointer.steps() == []
    checkpointer.save(1, {"model": 1}).result()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_what_the_state_raises_passes_through_a_restore(
    tmp_path: Path, error: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    pitstop.save(tmp_path / "one", {"model": Asked(lambda: {"w": 1})})
    with pytest.raises(type(error)) as caught:
        pitstop.restore(tmp_path / "one", into={"model": Asked(raising(error))})
    assert caught.value is error
    assert capfd.readouterr().err == ""


def test_calls_nest(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def inner() -> dict[str, int]:
        pitstop.save(tmp_path / "inner", {"w": 5})
        with pytest.raises(pitstop.UnsupportedTypeError):
            pitstop.save(tmp_path / "refused", {"w": inner})
        return pitstop.restore(tmp_path / "inner")

    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(1, {"model": Asked(inner)}).result()
        assert checkpointer.restore() == {"model": {"w": 5}}
    assert capfd.readouterr().err == ""


def test_a_failure_in_the_background_is_raised_and_not_printed(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpointer = pitstop.AsyncCheckpointer(run)
    with disk.replaced_by_a_file(run):
        handle = checkpointer.save(1, {"w": 1})
        with pytest.raises(pitstop.SaveError):
            handle.result()
    checkpointer.close()
    assert capfd.readouterr().err == ""


def test_a_failure_that_nobody_asks_about_is_not_printed_either(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpointer = pitstop.AsyncCheckpointer(run)
    with disk.replaced_by_a_file(run):
        checkpointer.save(1, {"w": 1})
        del checkpointer
    assert capfd.readouterr().err == ""
