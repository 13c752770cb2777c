"""Retention rules as Python writes them, joins them and asks functions."""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pitstop
import pytest
from pitstop import CheckpointInfo, Decision, KeepAll, KeepBest, KeepEvery, KeepFor, KeepLast, Retention

Decide = Callable[[Any, list[int]], list[Decision]]
Kept = Callable[[Any, list[int]], list[int]]


@pytest.fixture
def decide(tmp_path: Path) -> Decide:
    """Saves these steps, all kept, and returns what a rule would make of them."""
    numbers = itertools.count()

    def plan(retention: Any, steps: list[int]) -> list[Decision]:
        run = tmp_path / f"decide-{next(numbers)}"
        with pitstop.AsyncCheckpointer(run, fsync=False) as checkpointer:
            for step in steps:
                checkpointer.save(step, {"w": step})
        with pitstop.AsyncCheckpointer(run, retention=retention) as checkpointer:
            return checkpointer.plan()

    return plan


@pytest.fixture
def kept(decide: Decide) -> Kept:
    """The steps that a rule would keep of these."""
    return lambda retention, steps: [made.step for made in decide(retention, steps) if made.keep]


def even(infos: list[CheckpointInfo]) -> list[int]:
    return [info.step for info in infos if info.step % 2 == 0]


# Writing


@pytest.mark.parametrize(
    "text",
    [
        "KeepLast(3)",
        'KeepBest("val_loss", mode="min")',
        'KeepBest("accuracy", mode="max", n=2)',
        """KeepBest('a "quoted" name', mode="min")""",
        'KeepBest("naïve \U0001f600", mode="min")',
        "KeepEvery(10000)",
        "KeepFor(3600)",
        "KeepFor(0.5)",
        "KeepAll()",
        'KeepLast(3) | KeepBest("val_loss", mode="min")',
        "KeepLast(3) | KeepEvery(10) & KeepFor(60)",
        "(KeepLast(3) | KeepEvery(10)) & KeepFor(60)",
        "KeepLast(3) | even | KeepLast(1)",
        "even & KeepLast(3)",
    ],
)
def test_a_rule_is_shown_as_it_is_written(text: str) -> None:
    rule = eval(text)
    assert repr(rule) == text
    assert eval(repr(rule)) == rule


@pytest.mark.parametrize("metric", ["tab\t", "\u200b", "back\\slash", "it's", """both ' and " """])
def test_a_rule_is_shown_as_python_whatever_the_name_of_the_metric(metric: str) -> None:
    rule = KeepBest(metric, n=2)
    assert eval(repr(rule)) == rule
    assert rule.metric == metric


def test_rules_show_what_they_were_made_of() -> None:
    best = KeepBest(metric="loss", mode="max", n=4)
    assert (best.metric, best.mode, best.n) == ("loss", "max", 4)
    assert (KeepLast(n=2).n, KeepEvery(steps=5).steps, KeepFor(seconds=1.5).seconds) == (2, 5, 1.5)


def test_signatures_and_documentation_can_be_read() -> None:
    assert str(inspect.signature(KeepLast)) == "(n)"
    assert str(inspect.signature(KeepBest)) == "(metric, mode='min', n=1)"
    for rule in (Retention, KeepLast, KeepBest, KeepEvery, KeepFor, KeepAll):
        assert "Example:" in rule.__doc__
        assert rule.__module__ == "pitstop"
        assert issubclass(rule, Retention)


def test_rules_that_are_written_alike_are_equal() -> None:
    assert KeepLast(3) == KeepLast(3)
    assert KeepLast(3) != KeepLast(4)
    assert KeepBest("a") == KeepBest("a", "min", 1)
    assert KeepBest("a") != KeepBest("a", mode="max")
    assert KeepFor(60) == KeepFor(60.0)
    assert KeepLast(3) != 3
    assert KeepAll() | even == KeepAll() | even
    assert KeepAll() | even != KeepAll() & even
    assert KeepAll() | even != KeepAll() | len
    assert KeepLast(1) | (KeepLast(2) | KeepLast(3)) == (KeepLast(1) | KeepLast(2)) | KeepLast(3)
    assert len({KeepLast(3), KeepLast(3), KeepLast(3) | even, KeepLast(3) | even}) == 2


def test_rules_cannot_be_changed() -> None:
    rule = KeepLast(3)
    with pytest.raises(AttributeError):
        rule.n = 4
    assert copy.deepcopy(rule) is rule
    assert copy.copy(rule | even) == rule | even
    with pytest.raises(TypeError):
        Retention()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: KeepLast(0), "KeepLast: n must be at least 1, not 0"),
        (lambda: KeepLast(-5), "KeepLast: n must be at least 1, not -5"),
        (lambda: KeepLast(2**64), "KeepLast: n must be less than"),
        (lambda: KeepBest("loss", n=0), "KeepBest: n must be at least 1, not 0"),
        (lambda: KeepBest("loss", mode="lowest"), 'mode must be "min" or "max", not "lowest"'),
        (lambda: KeepEvery(0), "KeepEvery: steps must be at least 1, not 0"),
        (lambda: KeepFor(0), "KeepFor: seconds must be greater than 0, not 0"),
        (lambda: KeepFor(-1.5), "KeepFor: seconds must be greater than 0, not -1.5"),
        (lambda: KeepFor(float("nan")), "KeepFor: seconds must be greater than 0, not NaN"),
        (lambda: KeepFor(float("inf")), "KeepFor: seconds must be a length of time, not inf"),
        (lambda: KeepFor(1e-12), "KeepFor: seconds must be a nanosecond at least"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_the_reason(make: Any, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeepLast("3"),
        lambda: KeepLast(2.0),
        lambda: KeepLast(),
        lambda: KeepBest(3),
        lambda: KeepBest("loss", mode=None),
        lambda: KeepFor("a day"),
        lambda: KeepLast(1) | None,
        lambda: None | KeepLast(1),
        lambda: KeepLast(1) & 3,
        lambda: KeepLast(1) | KeepAll,
        lambda: KeepAll | KeepLast(1),
    ],
)
def test_an_argument_of_a_wrong_type_is_a_type_error(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


# Deciding


def test_either_and_both_keep_what_they_say(kept: Kept) -> None:
    steps = list(range(1, 11))
    assert kept(KeepLast(2) | KeepEvery(4), steps) == [4, 8, 9, 10]
    assert kept(KeepLast(5) & KeepEvery(4), steps) == [8]
    assert kept(KeepLast(1) | KeepLast(5) & KeepEvery(4), steps) == [8, 10]
    assert kept((KeepLast(1) | KeepLast(5)) & KeepEvery(4), steps) == [8]
    assert kept(KeepFor(3600) & KeepLast(3), steps) == [8, 9, 10]
    assert kept(None, steps) == kept(KeepAll(), steps) == steps


@pytest.mark.parametrize("rule", [even, KeepLast(1) | even, even | KeepLast(1)])
def test_a_function_works_alone_and_on_either_side(kept: Kept, rule: Any) -> None:
    assert kept(rule, [1, 2, 3, 4]) == [2, 4]
    assert kept(KeepLast(1) & even, [1, 2, 3]) == [3]


@pytest.mark.parametrize(
    "answer",
    [
        lambda infos: infos[-2:],
        lambda infos: {info.step for info in infos[-2:]},
        lambda infos: (info.step for info in infos[-2:]),
        lambda infos: dict.fromkeys([3, 4]),
        lambda infos: range(3, 1000),
        lambda infos: [infos[-1], 3],
    ],
)
def test_a_function_may_answer_with_steps_or_checkpoints(kept: Kept, answer: Any) -> None:
    assert kept(answer, [1, 2, 3, 4]) == [3, 4]


def test_a_function_may_answer_with_an_array(kept: Kept) -> None:
    assert kept(lambda infos: np.array([1, 3]), [1, 2, 3, 4]) == [1, 3]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "returned NoneType"),
        (3, "returned int"),
        ("34", "returned str"),
        ([1.5], "returned one with float in it"),
        (["3"], "returned one with str in it"),
        ([True, False], "returned one with bool in it"),
        ([None], "returned one with NoneType in it"),
    ],
)
def test_an_answer_of_a_wrong_type_says_what_is_expected(decide: Decide, answer: Any, text: str) -> None:
    def choose(infos: list[CheckpointInfo]) -> Any:
        return answer

    with pytest.raises(TypeError) as caught:
        decide(KeepLast(1) | choose, [1, 2, 3])
    message = str(caught.value)
    assert message.startswith("the retention function choose must return an iterable of the steps to keep")
    assert text in message


def test_a_negative_step_is_refused_since_it_is_an_index_by_mistake(decide: Decide) -> None:
    with pytest.raises(ValueError, match="returned -1, which is no step"):
        decide(lambda infos: [-1], [1, 2, 3])


def test_an_exception_of_a_function_arrives_as_it_is(run: Path, decide: Decide) -> None:
    def fail(infos: list[CheckpointInfo]) -> list[int]:
        raise ZeroDivisionError("mine")

    def fail_later(infos: list[CheckpointInfo]) -> Any:
        yield 1
        raise ZeroDivisionError("mine")

    for step, function in enumerate((fail, fail_later)):
        with pytest.raises(ZeroDivisionError, match="mine"):
            decide(KeepLast(1) | function, [1, 2])
        with pitstop.AsyncCheckpointer(run, retention=KeepLast(1) | function) as checkpointer:
            with pytest.raises(ZeroDivisionError, match="mine"):
                checkpointer.save(step, {"w": step})
            # It costs no checkpoint, neither this one nor the older ones.
            checkpointer.wait()
            assert checkpointer.steps() == list(range(step + 1))


def test_a_function_that_changes_its_list_does_not_change_that_of_the_next(kept: Kept) -> None:
    seen = []

    def greedy(infos: list[CheckpointInfo]) -> list[int]:
        seen.append([info.step for info in infos])
        infos.clear()
        return [1]

    assert kept(KeepLast(1) | greedy | even, [1, 2, 3]) == [1, 2, 3]
    assert seen == [[1, 2, 3]]


def test_a_function_judges_the_checkpoint_that_is_being_saved_as_well(run: Path) -> None:
    with pitstop.AsyncCheckpointer(run, retention=even) as checkpointer:
        for step in (1, 2, 3, 4, 5):
            checkpointer.save(step, {"w": step}).result()
        checkpointer.wait()
        assert checkpointer.steps() == [2, 4]


def test_reasons_name_the_rules_and_functions(decide: Decide) -> None:
    first, second, third = decide(KeepLast(1) | even, [1, 2, 3])
    assert (first.step, first.keep, first.reasons) == (1, False, ())
    assert (second.step, second.keep, second.reasons) == (2, True, ("even",))
    assert third.reasons == ("KeepLast(1)",)
    assert repr(second) == "Decision(step=2, keep=True, reasons=('even',))"
    assert second == decide(even, [2])[0]
    assert hash(second) == hash(decide(even, [2])[0])
    assert second != first
    with pytest.raises(AttributeError):
        second.keep = False


def test_a_function_is_asked_once_for_each_save_and_shown_what_is_known(run: Path) -> None:
    seen = []

    def watch(infos: list[CheckpointInfo]) -> list[CheckpointInfo]:
        seen.append([(info.step, info.path, info.metrics, info.metadata) for info in infos])
        return infos

    first = (1, run / "step-1", {"loss": 0.5}, {"commit": "abc"})
    second = (2, run / "step-2", {}, None)
    with pitstop.AsyncCheckpointer(run, retention=watch | KeepLast(1)) as checkpointer:
        assert seen == []
        checkpointer.save(1, {"w": 1}, metrics={"loss": 0.5}, metadata={"commit": "abc"}).result()
        assert seen == [[first]]
        checkpointer.save(2, {"w": 2}).result()
        assert seen == [[first], [first, second]]
        checkpointer.plan()
        assert seen == [[first], [first, second], [first, second]]
        checkpointer.wait()
        assert checkpointer.steps() == [1, 2]


@pytest.mark.parametrize(
    ("wrong", "text"), [(3, "not int"), ("all", "not str"), (KeepAll, "not the class KeepAll")]
)
def test_what_is_no_retention_is_refused(run: Path, wrong: Any, text: str) -> None:
    with pytest.raises(TypeError, match=r"retention must be a rule such as KeepLast\(3\)") as caught:
        pitstop.AsyncCheckpointer(run, retention=wrong)
    assert text in str(caught.value)
    assert not run.exists()


def test_a_rule_in_a_cycle_is_collected() -> None:
    class Chooser:
        rule: Any = None

        def __call__(self, infos: list[CheckpointInfo]) -> list[int]:
            return []

    chooser = Chooser()
    chooser.rule = KeepLast(1) | chooser
    gone = weakref.ref(chooser)
    del chooser
    gc.collect()
    assert gone() is None
