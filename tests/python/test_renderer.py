"""The renderer without a terminal: what a loop tells it, how it begins and ends, whom it does not harm."""

import copy
import decimal
import fractions
import json
import pickle
import threading
import time
import weakref

import child
import numpy as np
import pitstop
import pytest


def happened(directory, *kinds):
    """What was written of a run, without the times; all kinds that are important if none are named."""
    kinds = kinds or ("start", "split_start", "split_end", "epoch", "named", "end")
    path = directory / "events.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []  # all that are whole
    told = [json.loads(line) for line in lines]
    for one in told:
        del one["at"]
    return [one for one in told if one["event"] in kinds]


def in_short(directory):
    """The course of a run in a line, such as `start 0, +train 0/3, -, epoch 1, end`."""
    words = []
    for one in happened(directory):
        match one["event"]:
            case "start":
                words.append(f"start {one['step']}")
            case "split_start":
                words.append(f"+{one['split']} {one['done']}/{one.get('total')}")
            case "split_end":
                words.append("-")
            case "epoch":
                words.append(f"epoch {one['epoch']}")
            case other:
                words.append(other)
    return ", ".join(words)


def told(directory, course):
    """Waits until the course of a run is that. What happens within a quarter of a second is written once."""
    deadline = time.monotonic() + 60
    while in_short(directory) != course and time.monotonic() < deadline:
        time.sleep(0.02)
    assert in_short(directory) == course
    return course


def logged(directory, **values):
    """What comes of values, by name."""
    with pitstop.Renderer(directory=directory) as screen:
        screen.log(**values)
    numbers = {one["name"]: float(one["value"]) for one in happened(directory, "numeric")}
    texts = {one["name"]: one["text"] for one in happened(directory, "text")}
    return numbers | texts


# --- values ---------------------------------------------------------------------------------------


class Half(float):
    """A number of a type of one's own."""


class Measured:
    def __float__(self):
        return 0.25


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((1.5, 1.5), (2, 2.0), (True, 1.0), (False, 0.0), (-1.0, -1.0), (-1, -1.0), (2**70, 2.0**70)),
        *(
            (Half(0.5), 0.5),
            (Measured(), 0.25),
            (decimal.Decimal("0.125"), 0.125),
            (fractions.Fraction(1, 4), 0.25),
        ),
        *((np.float16(0.5), 0.5), (np.float32(0.25), 0.25), (np.float64(3.0), 3.0), (np.int8(-4), -4.0)),
        *((np.uint64(7), 7.0), (np.bool_(True), 1.0), (np.longdouble(0.5), 0.5)),
        *((np.array(0.5, np.float32), 0.5), (np.array([3]), 3.0), (np.ones((1, 1)), 1.0)),
        *((float("inf"), float("inf")), (float("-inf"), float("-inf"))),
    ],
    ids=repr,
)
def test_what_is_a_number_is_plotted(run, value, number):
    assert logged(run, metric=value) == {"metric": number}


def test_nan_is_a_value(run):
    assert np.isnan(logged(run, loss=float("nan"))["loss"])


def test_a_text_is_shown_as_one(run):
    values = logged(run, phase="warm-up", sample=np.str_("ünï\nhello"))
    assert values == {"phase": "warm-up", "sample": "ünï\nhello"}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NoneType"),
        ([1.0], "list"),
        (1j, "complex"),
        ({"a": 1}, "dict"),
        (object(), "object"),
        (b"1", "bytes"),
    ],
    ids=repr,
)
def test_anything_else_is_refused_by_name(run, value, kind):
    refused = pytest.raises(TypeError, match=f'metric "bad" must be a number or a text, not {kind}')
    with pitstop.Renderer(directory=run) as screen, refused:
        screen.log(good=1.0, bad=value)
    assert happened(run, "numeric") == [], "all of a call, or nothing"


def test_an_array_of_several_numbers_is_refused_with_its_shape():
    with pitstop.Renderer() as screen:
        with pytest.raises(
            TypeError, match=r'"losses" must be a single number, not a numpy.ndarray of shape \[2, 3\]'
        ):
            screen.log(losses=np.zeros((2, 3)))
        with pytest.raises(TypeError, match=r"of shape \[0\]"):
            screen.log(losses=np.zeros(0))


def test_what_a_value_raises_by_itself_is_not_hidden():
    class Broken:
        shape = ()

        def item(self):
            raise RuntimeError("device-side assert triggered")

    with pitstop.Renderer() as screen, pytest.raises(RuntimeError, match="device-side assert"):
        screen.log(loss=Broken())


def test_a_mapping_has_names_that_no_keyword_has(run):
    with pitstop.Renderer(directory=run) as screen:
        screen.log({"top 5/accuracy": 0.5, "split": 1, "step": 2}, values=3)
        with pytest.raises(TypeError, match="names of metrics must be text, not int"):
            screen.log({1: 0.5})
        with pytest.raises(TypeError, match="must be a mapping from names to values, or keywords, not float"):
            screen.log(0.5)
    names = {one["name"] for one in happened(run, "numeric")}
    assert names == {"top 5/accuracy", "split", "step", "values"}


def test_a_value_belongs_to_the_pass_around_it(run):
    with pitstop.Renderer(directory=run) as screen:
        screen.log(before=1)
        for _ in screen.track([0], "valid"):
            screen.log(inside=1)
            screen.log(explicit=1, split="test")
    splits = {one["name"]: one["split"] for one in happened(run, "numeric")}
    assert splits == {"before": "train", "inside": "valid", "explicit": "test"}


# --- passes, steps and epochs ---------------------------------------------------------------------


def test_passes_over_the_training_data_are_epochs_and_its_items_are_steps(run):
    with pitstop.Renderer(epochs=2, directory=run) as screen:
        for epoch in range(2):
            for number, letter in enumerate(screen.track("abc", "train"), 1):
                assert letter == "abc"[number - 1]
                assert screen.step == 3 * epoch + number
            course = told(run, f"start 0, +train 0/3, -{', epoch 1, +train 0/3, -' if epoch else ''}")
        assert list(screen.track(range(2), "valid")) == [0, 1]
        assert screen.step == 6
    told(run, course + ", +valid 0/2, -, epoch 2, end")
    assert happened(run, "progress")[-1] == {"event": "progress", "done": 2, "step": 6}


def test_a_pass_ends_by_break_and_by_an_exception_too(run):
    with pitstop.Renderer(directory=run) as screen:
        for _ in screen.track(range(5), "valid"):
            course = told(run, "start 0, +valid 0/5")
            break
        course = told(run, course + ", -")

        def fail(course):
            for _ in screen.track(range(5), "test"):
                told(run, course + ", +test 0/5")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail(course)
        course = told(run, course + ", +test 0/5, -")
        tracked = screen.track(range(5), "valid")
        assert next(tracked) == 0
        course = told(run, course + ", +valid 0/5")
        tracked.close()
        assert list(tracked) == []
        told(run, course + ", -")


def test_what_the_iterable_raises_ends_the_pass_and_comes_out(run):
    def failing():
        yield 1
        raise OSError("the data set is gone")

    with pitstop.Renderer(directory=run) as screen:
        with pytest.raises(OSError, match="the data set is gone"):
            list(screen.track(failing()))
        told(run, "start 0, +train 0/None, -")
        with pytest.raises(TypeError, match="'int' object is not iterable"):
            list(screen.track(5, "valid"))
    told(run, "start 0, +train 0/None, -, +valid 0/None, -, end")


def test_a_pass_inside_another_lets_that_go_on(run):
    with pitstop.Renderer(steps=2, directory=run) as screen:
        for number in screen.track(range(2)):
            if number == 0:
                course = told(run, "start 0, +train 0/2")
                for _ in screen.track("x", "valid"):
                    screen.log(inside=1)
                    course = told(run, course + ", +valid 0/1")
                course = told(run, course + ", -, +train 0/2")
                screen.log(after=1)
    told(run, course + ", -, epoch 1, end")
    splits = {one["name"]: one["split"] for one in happened(run, "numeric")}
    assert splits == {"inside": "valid", "after": "train"}


def test_how_long_a_pass_is_can_be_said(run):
    with pitstop.Renderer(directory=run, step=40, epoch=2) as screen:
        assert list(screen.track(iter("ab"), "train", total=10, done=8)) == ["a", "b"]
        course = told(run, "start 40, +train 8/10, -")
        assert list(screen.track("ab", "valid", done=3)) == ["a", "b"]
        assert screen.step == 42
    told(run, course + ", +valid 3/5, -, epoch 3, end")


def test_a_run_begins_where_it_is_said_to_with_its_first_value(run):
    with pitstop.Renderer(epochs=9, directory=run) as screen:
        screen.register("loss", unit="nats", goal="min")
        assert happened(run) == []
        screen.start(epoch=3, step=300)
        screen.log(loss=1.0)
    assert in_short(run) == "start 300, end"
    assert happened(run, "start")[0]["epochs"] == 9
    assert happened(run, "register") == [{"event": "register", "name": "loss", "unit": "nats", "goal": "min"}]


def test_each_time_values_are_logged_is_a_step_where_nothing_else_counts_them(run):
    with pitstop.Renderer(steps=3, directory=run) as screen:
        for _ in range(3):
            screen.log(loss=1.0)
            screen.log(split="valid", loss=2.0)
        assert screen.step == 3
    with pitstop.Renderer(directory=run) as screen:
        for _ in screen.track(range(2)):
            screen.log(loss=1.0)
        screen.log(loss=1.0)
        assert screen.step == 2


def test_who_counts_steps_and_epochs_counts_alone(run):
    with pitstop.Renderer(directory=run) as screen:
        for item in screen.track(range(4)):
            if item % 2:
                screen.step = item // 2 + 1  # gradients of two batches make a step
        assert screen.step == 2
        told(run, "start 0, +train 0/4, -")
        screen.log(step=7, loss=1.0)
        assert screen.step == 7
        screen.epoch(5)
        list(screen.track(range(4)))
        assert screen.step == 7
    assert in_short(run) == "start 0, +train 0/4, -, epoch 5, +train 0/4, -, end"
    assert [one["step"] for one in happened(run, "numeric")] == [7]


def test_a_loop_of_ones_own_tells_everything_by_itself(run):
    with pitstop.Renderer(directory=run) as screen:
        screen.split_start("train", total=3)
        screen.progress(1)
        assert screen.step == 1
        screen.progress(3, step=30)
        screen.split_end()
        screen.event("overflow", "the loss scale is halved")
        screen.text("phase", "cool-down", split="valid")
        screen.epoch(1)
        screen.end({"parameters": 12, "device": "cpu"})
    assert in_short(run) == "start 0, +train 0/3, -, named, epoch 1, end"
    assert happened(run, "text") == [
        {"event": "text", "split": "valid", "name": "phase", "text": "cool-down"}
    ]
    (end,) = happened(run, "end")
    assert end["summary"] == [["parameters", "12"], ["device", "cpu"]]
    assert "error" not in end


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda screen: screen.track([], "val"), 'split must be "train", "valid" or "test", not "val"'),
        (lambda screen: screen.log(loss=1, split="dev"), "split must be"),
        (lambda screen: screen.register("loss", goal="low"), 'goal must be "min" or "max", not "low"'),
        (lambda screen: screen.progress(-1), "done must be between 0 and"),
        (lambda screen: screen.start(epoch=-1), "epoch must be between 0 and"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pitstop.Renderer() as screen, pytest.raises(ValueError, match=message):
        call(screen)


# --- the beginning and the end --------------------------------------------------------------------


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


# --- plain lines ----------------------------------------------------------------------------------


def test_without_a_terminal_it_prints_lines_to_standard_output():
    output = child.run(
        """
        import pitstop
        with pitstop.Renderer(steps=3) as screen:
            for _ in screen.track(range(3)):
                screen.log(loss=0.5)
            screen.end({"device": "cpu"})
        print("after")
        """
    )
    assert "loss" in output
    assert "device" in output
    assert output.splitlines()[-1] == "after"
    assert "\x1b" not in output


def test_the_values_of_a_validation_are_summed_up_by_their_mean():
    output = child.run(
        """
        import pitstop
        with pitstop.Renderer() as screen:
            for _ in screen.track(range(3)):
                pass
            for value in screen.track([10, 1, 2, 3, 4, 5, 6, 7, 8, 9], "valid"):
                screen.log(score=value)
        """
    )
    (row,) = [line.split() for line in output.splitlines() if line.split()[:2] == ["score", "valid"]]
    assert row[2] == "5.5"
    assert "10" not in row


def test_a_stop_just_before_the_end_is_told():
    output = child.run(
        """
        import pitstop
        interrupter = pitstop.Interrupter()
        with pitstop.Renderer(interrupter=interrupter) as screen:
            for _ in screen.track(range(3)):
                screen.log(loss=0.5)
            interrupter.stop("budget used up")
        """
    )
    assert "the run was stopped" in output
    assert "budget used up" in output


def test_where_python_has_another_standard_output_the_lines_go_there(capsys):
    """In a notebook, and where a test captures what is printed."""
    with pitstop.Renderer() as screen:
        screen.log(loss=0.5)
    assert "loss" in capsys.readouterr().out


def test_a_standard_output_that_is_gone_or_broken_is_put_up_with():
    child.run(
        """
        import io, sys, pitstop
        class Broken(io.StringIO):
            def write(self, text):
                raise OSError("no room")
            flush = fileno = write
        real = sys.stdout
        for sys.stdout in (None, Broken(), io.StringIO()):
            with pitstop.Renderer() as screen:
                screen.log(loss=0.5)
        text, sys.stdout = sys.stdout.getvalue(), real
        assert "loss" in text, text
        """
    )


def test_a_screen_that_is_insisted_on_needs_a_terminal():
    child.run(
        """
        import pitstop
        try:
            pitstop.Renderer(plain=False).start()
        except OSError as error:
            assert "terminal" in str(error), error
        else:
            raise AssertionError("there is none")
        """
    )


# --- processes and threads ------------------------------------------------------------------------

FORKED = """
    import os, sys, warnings, pitstop
    warnings.simplefilter("ignore", DeprecationWarning)
    with pitstop.Renderer(directory=sys.argv[1]) as screen:
        screen.log(before=1)
        child = os.fork()
        if child == 0:
            screen.log(inside=1)
            assert [screen.step for _ in screen.track([1, 2])] == [0, 0]
            screen.epoch(1)
            screen.end()
            screen.close()
            {leave}
        status = os.waitpid(child, 0)[1]
        assert os.waitstatus_to_exitcode(status) == 0, status
        screen.log(after=1)
"""


@pytest.mark.parametrize("leave", ["os._exit(0)", "del screen; sys.exit()", "sys.exit()"])
def test_in_a_forked_child_all_calls_do_nothing(run, leave):
    child.run(FORKED.format(leave=leave), run)
    assert {one["name"] for one in happened(run, "numeric")} == {"before", "after"}
    assert in_short(run) == "start 0, end"


def test_a_script_that_ends_without_closing_it_is_shown_to_its_end(run):
    child.run(
        """
        import sys, pitstop
        screen = pitstop.Renderer(directory=sys.argv[1])
        screen.start()
        screen.log(loss=1.0)
        """,
        run,
    )
    assert in_short(run) == "start 0, end"
    assert "error" not in happened(run, "end")[0]


def test_a_script_that_fails_without_closing_it_says_so(run):
    code, _, errors = child.end(
        child.start(
            """
            import sys, pitstop
            screen = pitstop.Renderer(directory=sys.argv[1])
            screen.start()
            raise ValueError("the loss is NaN")
            """,
            run,
        )
    )
    assert (code, errors.splitlines()[-1]) == (1, "ValueError: the loss is NaN")
    assert happened(run, "end")[0]["error"] == "ValueError: the loss is NaN"


def test_threads_may_log_side_by_side_and_while_it_is_closed():
    screen = pitstop.Renderer()
    screen.start()
    started, refused = threading.Barrier(5, timeout=60), []

    def log():
        started.wait()
        try:
            while True:
                list(screen.track(range(3), "valid"))
                screen.log(loss=1.0)
        except RuntimeError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=log) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    screen.close()
    for thread in threads:
        thread.join(60)
    assert refused == ["the renderer is closed; each run needs one of its own"] * 4


# --- checkpoints ----------------------------------------------------------------------------------


def test_the_saves_of_a_checkpointer_are_shown_and_the_events_lie_beside_them(run):
    with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2)) as checkpointer:
        with pitstop.Renderer(checkpointer=checkpointer) as screen:
            for step in screen.track(range(1, 4)):
                checkpointer.save(step, {"w": np.zeros(1000)}).result()
        last = happened(run, "checkpoints")[-1]
        assert (last["saved"], last["failed"], last["last"]["step"]) == (3, 0, 3)
        assert last["last"]["stall"] > 0
        assert [kept["step"] for kept in last["kept"]] == [2, 3]
        assert last["directory"] == str(run)


def test_a_save_that_failed_is_shown_with_its_message_and_raised_all_the_same(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        with pitstop.Renderer(checkpointer=checkpointer):
            checkpointer.save(1, {"w": 1}).result()
            (run / "step-2").mkdir()
            (run / "step-2" / "mine").write_text("no checkpoint")
            handle = checkpointer.save(2, {"w": 2})
            with pytest.raises(pitstop.SaveError) as caught:
                handle.result()
        last = happened(run, "checkpoints")[-1]
        assert (last["saved"], last["failed"]) == (1, 1)
        (failure,) = last["failures"]
        assert str(caught.value).partition("Error when saving the state: ")[2] in failure


def test_saves_that_are_skipped_are_counted(run, big_state):
    with pitstop.AsyncCheckpointer(run, on_busy="skip") as checkpointer:
        with pitstop.Renderer(checkpointer=checkpointer):
            handles = [checkpointer.save(step, big_state) for step in range(1, 4)]
            checkpointer.wait()
        skipped = sum(handle.skipped for handle in handles)
        last = happened(run, "checkpoints")[-1]
        assert last["skipped"] == skipped
        assert last["saved"] == 3 - skipped


def test_a_rule_of_the_users_is_shown_after_it_was_asked(run):
    with pitstop.AsyncCheckpointer(run, retention=lambda infos: [infos[0]]) as checkpointer:
        with pitstop.Renderer(checkpointer=checkpointer):
            for step in range(1, 4):
                checkpointer.save(step, {"w": step}).result()
        kept = happened(run, "checkpoints")[-1]["kept"]
        assert [one["step"] for one in kept] == checkpointer.steps()


def test_a_directory_that_is_given_wins(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    with (
        pitstop.AsyncCheckpointer(run) as checkpointer,
        pitstop.Renderer(checkpointer=checkpointer, directory=elsewhere) as screen,
    ):
        screen.log(loss=1.0)
    assert in_short(elsewhere) == "start 0, end"
    assert not (run / "events.jsonl").exists()


def test_a_checkpointer_that_is_closed_or_none_is_refused(run):
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        pass
    with pytest.raises(pitstop.CheckpointError, match="is closed"):
        pitstop.Renderer(checkpointer=checkpointer)
    with pytest.raises(TypeError, match="checkpointer"):
        pitstop.Renderer(checkpointer=str(run))


def test_a_screen_does_not_keep_a_checkpointer_alive_or_its_directory_locked(run):
    checkpointer = pitstop.AsyncCheckpointer(run)
    with pitstop.Renderer(checkpointer=checkpointer):
        gone = weakref.ref(checkpointer)
        checkpointer.save(1, {"w": 1}).result()
        del checkpointer
        assert gone() is None
        with pitstop.AsyncCheckpointer(run) as again:
            assert again.steps() == [1]
