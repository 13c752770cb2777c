"""The renderer without a terminal: how it begins and ends, and what it says of that."""

import copy
import logging
import pickle
import time
import weakref

import pitstop
import pytest
from events import happened, in_short, written


def test_it_is_used_between_start_and_close_and_once():
    screen = pitstop.Renderer()
    with pytest.raises(RuntimeError, match="not open: use it in `with`, or call start"):
        screen.log(loss=1.0)
    with pytest.raises(RuntimeError, match="not open"):
        list(screen.track([1]))
    screen.close()
    screen.start()
    with screen as entered:
        assert entered is screen
        screen.log(loss=1.0)
    screen.close()
    assert repr(screen) == "<pitstop.Renderer: closed, step 1>"
    for late in (screen.start, screen.__enter__, lambda: screen.log(loss=1.0), lambda: screen.epoch(1)):
        with pytest.raises(RuntimeError, match="the renderer is closed"):
            late()


@pytest.mark.parametrize(
    ("exception", "error"),
    [
        (ValueError("the loss is NaN\nand more"), "ValueError: the loss is NaN"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (SystemExit(0), None),
        (SystemExit(), None),
        (pitstop.TrainingKilled(), "Killing training from user input."),
        (pitstop.SaveError("step 2: the disk is full"), "pitstop.errors.SaveError: step 2: the disk is full"),
    ],
    ids=repr,
)
def test_an_exception_goes_on_and_is_told(run, exception, error):
    with pytest.raises(type(exception)) as caught, pitstop.Renderer(directory=run):
        raise exception
    assert caught.value is exception
    (end,) = happened(run, "end")
    assert end.get("error") == error


def test_the_history_of_a_resumed_run_is_kept_and_what_was_abandoned_is_not_told_again(run):
    with pitstop.Renderer(directory=run) as screen:
        screen.log(loss=1.0, step=5)
    with pitstop.Renderer(directory=run, step=5) as screen:
        screen.log(loss=0.5, step=6)
    assert in_short(run) == "start 4, end, start 5, end"
    assert [one["value"] for one in happened(run, "numeric")] == [1.0, 0.5]


def test_the_interrupter_is_that_of_the_user_or_one_of_its_own():
    interrupter = pitstop.Interrupter()
    assert pitstop.Renderer(interrupter=interrupter).interrupter is interrupter
    own = pitstop.Renderer().interrupter
    assert isinstance(own, pitstop.Interrupter)
    assert not own.should_stop()


def test_a_soft_stop_from_anywhere_is_shown(run):
    interrupter = pitstop.Interrupter()
    with pitstop.Renderer(directory=run, interrupter=interrupter) as screen:
        for _ in screen.track(range(10**9)):
            interrupter.stop("the loss is NaN")
            if happened(run, "stopping"):
                break
    assert happened(run, "stopping") == [{"event": "stopping", "message": "the loss is NaN"}]


def test_a_run_that_tells_nothing_lasts_as_long_as_it_is_open_and_knows_why_it_stopped(run, capsys):
    """It began when it was over."""
    interrupter = pitstop.Interrupter()
    with pitstop.Renderer(directory=run, interrupter=interrupter):
        inside = time.time()
        time.sleep(0.05)
        interrupter.stop("time is up")
    (start,) = (one for one in written(run) if one["event"] == "start")
    assert start["at"] <= inside + 0.001, "times are written in milliseconds"
    ending = capsys.readouterr().out.splitlines()[-1]
    assert ending.startswith("the run was stopped after ")
    assert ending.endswith(": time is up")


TELLING = {
    "log": lambda screen: screen.log(loss=1.0),
    "text": lambda screen: screen.text("phase", "late"),
    "event": lambda screen: screen.event("late"),
    "register": lambda screen: screen.register("loss", goal="min"),
    "track": lambda screen: list(screen.track([1])),
    "progress": lambda screen: screen.progress(3),
    "epoch": lambda screen: screen.epoch(1),
    "step": lambda screen: setattr(screen, "step", 3),
    "start": lambda screen: screen.start(),
    "end with a summary": lambda screen: screen.end({"late": 1}),
}


@pytest.mark.parametrize("call", TELLING)
def test_what_is_told_after_the_end_is_refused(run, call):
    """It was lost without a word."""
    with pitstop.Renderer(directory=run) as screen:
        screen.log(loss=1.0)
        screen.end({"device": "cpu"})
        with pytest.raises(RuntimeError, match=r"the run is over: end\(\) was called"):
            TELLING[call](screen)
        screen.end()
        screen.close()
    assert in_short(run) == "start 0, end"
    assert happened(run, "end")[0]["summary"] == [["device", "cpu"]]


def test_a_loop_may_be_left_after_the_end(run):
    with pitstop.Renderer(directory=run) as screen:
        for _ in screen.track(range(3)):
            screen.end()
            break
    assert in_short(run) == "start 0, +train 0/3, end"


def test_what_goes_wrong_in_closing_is_a_note_of_the_exception_on_its_way_out(run):
    """It was lost."""

    class Full(logging.Handler):
        def emit(self, record):
            raise OSError("the log is full")

    def train():
        with pitstop.Renderer(directory=run) as screen:
            screen.log({f"metric {number}": 1.0 for number in range(600)})  # more than are shown: a warning
            raise ValueError("the loss is NaN")

    full = Full()
    logging.getLogger("pitstop").addHandler(full)
    try:
        with pytest.raises(ValueError, match="the loss is NaN") as caught:
            train()
    finally:
        logging.getLogger("pitstop").removeHandler(full)
    assert caught.value.__notes__ == ["pitstop: the log is full"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_cannot_be_copied(copied):
    with pytest.raises(TypeError, match=r"cannot pickle 'pitstop\.Renderer' object"):
        copied(pitstop.Renderer())


def test_one_that_is_dropped_is_closed(run):
    screen = pitstop.Renderer(directory=run)
    screen.start()
    screen.log(loss=1.0)
    gone = weakref.ref(screen)
    del screen
    assert gone() is None
    assert in_short(run) == "start 0, end"


def test_the_exception_of_a_kill_says_what_it_is():
    assert str(pitstop.TrainingKilled()) == "Killing training from user input."
    assert repr(pitstop.TrainingKilled()) == "TrainingKilled('Killing training from user input.')"
    assert str(pickle.loads(pickle.dumps(pitstop.TrainingKilled("now")))) == "now"
