"""A panic reaches Python as an exception, and stderr not at all."""

from __future__ import annotations

import pitstop
import pytest
from pitstop.errors import CheckpointError

native = pitstop._native
pytestmark = pytest.mark.skipif(
    not hasattr(native, "probe_panic"), reason="the probes are in debug builds only"
)


def test_what_does_not_panic_passes() -> None:
    assert native.probe_panic("nothing") == 7
    with pytest.raises(ValueError, match="an ordinary error"):
        native.probe_panic("error")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("text", "a plain text"),
        ("formatted", "text number 9"),
        ("index", "index out of bounds: the len is 3 but the index is 5"),
        ("detached", "without the GIL"),
        ("object", "a panic without a text"),
    ],
)
def test_a_panic_is_an_exception_with_its_text_and_place(
    how: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CheckpointError) as caught:
        native.probe_panic(how)
    message = str(caught.value)
    assert message.startswith(f"probe: internal error: {text} (at src")
    assert "probe.rs:" in message
    assert capfd.readouterr().err == ""


def test_a_panic_that_was_carried_over_is_not_given_the_place_of_another(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(CheckpointError):
        native.probe_panic("text")
    with pytest.raises(CheckpointError) as caught:
        native.probe_panic("resumed")
    assert str(caught.value) == "probe: internal error: carried over"
    assert capfd.readouterr().err == ""


def test_crossings_nest(capfd: pytest.CaptureFixture[str]) -> None:
    def inner() -> int:
        with pytest.raises(CheckpointError):
            native.probe_panic("text")
        return native.probe_panic("formatted")

    with pytest.raises(CheckpointError, match="text number 9"):
        native.probe_panic("call", inner)
    assert capfd.readouterr().err == ""


def test_a_panic_in_a_thread_of_the_core_is_not_reported(capfd: pytest.CaptureFixture[str]) -> None:
    native.probe_panic_in_thread("pitstop-worker")
    assert capfd.readouterr().err == ""


def test_a_panic_elsewhere_is_reported_as_ever(capfd: pytest.CaptureFixture[str]) -> None:
    native.probe_panic_in_thread("somebody else")
    err = capfd.readouterr().err
    assert "somebody else" in err
    assert "in a thread" in err
