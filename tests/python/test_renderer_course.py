"""What the loops of a training amount to: passes, steps, epochs."""

import pitstop
import pytest
from events import happened, in_short, told


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
    told(run, course + ", -, end")
    splits = {one["name"]: one["split"] for one in happened(run, "numeric")}
    assert splits == {"inside": "valid", "after": "train"}


def test_a_run_that_is_given_only_steps_has_no_epochs(run, capsys):
    """Each of its passes was told as an epoch."""
    with pitstop.Renderer(steps=4, directory=run) as screen:
        for _ in range(2):
            assert list(screen.track(range(2))) == [0, 1]
    assert happened(run, "epoch") == []
    printed = capsys.readouterr().out
    assert "a run of 4 steps begins" in printed
    assert "epoch" not in printed


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 10, "step": 20}, r"^pitstop\.Renderer: step=20 is beyond steps=10: .* a larger steps"),
        ({"epochs": 2, "epoch": 3}, r"^pitstop\.Renderer: epoch=3 is beyond epochs=2: .* a larger epochs"),
    ],
)
def test_a_run_cannot_begin_behind_its_end(given, message):
    """It was shown as one that is done."""
    with pytest.raises(ValueError, match=message):
        pitstop.Renderer(**given)


def test_a_run_that_learns_late_where_it_goes_on_cannot_either(run):
    screen = pitstop.Renderer(steps=10, directory=run)
    with pytest.raises(ValueError, match=r"^pitstop\.Renderer\.start: step=20 is beyond steps=10: "):
        screen.start(step=20)
    assert repr(screen) == "<pitstop.Renderer: new, step 0>"
    with screen:
        screen.start(step=10)
    assert in_short(run) == "start 10, end"


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
