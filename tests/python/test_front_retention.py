"""Retention rules as Python writes them, joins them and asks functions."""

from __future__ import annotations

import copy
import gc
import inspect
import weakref
from dataclasses import dataclass
from typing import Any

import pitstop
import pytest
from pitstop import KeepAll, KeepBest, KeepEvery, KeepFor, KeepLast, Retention

needs_probe = pytest.mark.skipif(
    not hasattr(pitstop._native, "probe_decide"), reason="the probes are in debug builds only"
)


@dataclass(frozen=True)
class Info:
    step: int


def on_disk(*steps: int, **metrics: float) -> list[tuple[int, float, dict[str, float]]]:
    return [(step, float(step), dict(metrics)) for step in steps]


def decide(retention: Any, steps: list[int], committed: list[int] | None = None) -> list[Any]:
    """What becomes of ``steps`` if functions were asked about ``committed``, by default the same ones."""
    infos = [Info(step) for step in (steps if committed is None else committed)]
    return pitstop._native.probe_decide(retention, infos, on_disk(*steps))[2]


def kept(retention: Any, steps: list[int], committed: list[int] | None = None) -> list[int]:
    return [decision.step for decision in decide(retention, steps, committed) if decision.keep]


def even(infos: list[Info]) -> list[int]:
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


@needs_probe
def test_either_and_both_keep_what_they_say() -> None:
    steps = list(range(1, 11))
    assert kept(KeepLast(2) | KeepEvery(4), steps) == [4, 8, 9, 10]
    assert kept(KeepLast(5) & KeepEvery(4), steps) == [8]
    assert kept(KeepLast(1) | KeepLast(5) & KeepEvery(4), steps) == [8, 10]
    assert kept((KeepLast(1) | KeepLast(5)) & KeepEvery(4), steps) == [8]
    assert kept(KeepFor(3), steps) == [7, 8, 9, 10]
    assert kept(None, steps) == kept(KeepAll(), steps) == steps


@needs_probe
@pytest.mark.parametrize("rule", [even, KeepLast(1) | even, even | KeepLast(1)])
def test_a_function_works_alone_and_on_either_side(rule: Any) -> None:
    assert kept(rule, [1, 2, 3, 4]) == [2, 4]
    assert kept(KeepLast(1) & even, [1, 2, 3]) == [3]


@needs_probe
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
def test_a_function_may_answer_with_steps_or_checkpoints(answer: Any) -> None:
    assert kept(answer, [1, 2, 3, 4]) == [3, 4]


@needs_probe
def test_a_function_may_answer_with_an_array() -> None:
    numpy = pytest.importorskip("numpy")
    assert kept(lambda infos: numpy.array([1, 3]), [1, 2, 3, 4]) == [1, 3]


@needs_probe
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
def test_an_answer_of_a_wrong_type_says_what_is_expected(answer: Any, text: str) -> None:
    def choose(infos: list[Info]) -> Any:
        return answer

    with pytest.raises(TypeError) as caught:
        decide(KeepLast(1) | choose, [1, 2, 3])
    message = str(caught.value)
    assert message.startswith("the retention function choose must return an iterable of the steps to keep")
    assert text in message


@needs_probe
def test_a_negative_step_is_refused_since_it_is_an_index_by_mistake() -> None:
    with pytest.raises(ValueError, match="returned -1, which is no step"):
        decide(lambda infos: [-1], [1, 2, 3])


@needs_probe
def test_an_exception_of_a_function_arrives_as_it_is() -> None:
    def fail(infos: list[Info]) -> list[int]:
        raise ZeroDivisionError("mine")

    def fail_later(infos: list[Info]) -> Any:
        yield 1
        raise ZeroDivisionError("mine")

    for function in (fail, fail_later):
        with pytest.raises(ZeroDivisionError, match="mine"):
            decide(KeepLast(1) | function, [1, 2])


@needs_probe
def test_a_function_that_changes_its_list_does_not_change_that_of_the_next() -> None:
    seen = []

    def greedy(infos: list[Info]) -> list[int]:
        seen.append([info.step for info in infos])
        infos.clear()
        return [1]

    assert kept(KeepLast(1) | greedy | even, [1, 2, 3]) == [1, 2, 3]
    assert seen == [[1, 2, 3]]


@needs_probe
def test_a_checkpoint_that_a_function_was_not_asked_about_stays() -> None:
    # The function is asked before the save is committed: the new checkpoint must survive its answer.
    assert kept(even, steps=[1, 2, 3, 5], committed=[1, 2, 3]) == [2, 5]
    assert kept(even & KeepLast(1), steps=[2, 4, 5], committed=[2, 4]) == [5]


@needs_probe
def test_reasons_name_the_rules_and_functions() -> None:
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


@needs_probe
def test_only_rules_with_a_function_need_to_be_asked_again() -> None:
    def has_callable(retention: Any) -> bool:
        return pitstop._native.probe_decide(retention, [], [])[0]

    assert not has_callable(None)
    assert not has_callable(KeepLast(1) | KeepAll())
    assert has_callable(even)
    assert has_callable(KeepAll() & (KeepLast(1) | even))


@needs_probe
@pytest.mark.parametrize(
    ("wrong", "text"), [(3, "not int"), ("all", "not str"), (KeepAll, "not the class KeepAll")]
)
def test_what_is_no_retention_is_refused(wrong: Any, text: str) -> None:
    with pytest.raises(TypeError, match=r"retention must be a rule such as KeepLast\(3\)") as caught:
        decide(wrong, [1])
    assert text in str(caught.value)


def test_a_rule_in_a_cycle_is_collected() -> None:
    class Chooser:
        rule: Any = None

        def __call__(self, infos: list[Info]) -> list[int]:
            return []

    chooser = Chooser()
    chooser.rule = KeepLast(1) | chooser
    gone = weakref.ref(chooser)
    del chooser
    gc.collect()
    assert gone() is None
