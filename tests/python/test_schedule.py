"""When to save: what the intervals are, and how `should_save` goes by them."""

import copy
import math
import pickle
import time

import numpy as np
import pitstop
import pytest
from test_errors import removed, settle

INTERVALS = {
    "EverySteps(500)": lambda: pitstop.EverySteps(500),
    "EveryMinutes(10)": lambda: pitstop.EveryMinutes(10),
    "EveryMinutes(0.25)": lambda: pitstop.EveryMinutes(np.float32(0.25)),
    "Overhead(0.02)": lambda: pitstop.Overhead(0.02),
    "EverySteps(500) | Overhead(0.02)": lambda: pitstop.EverySteps(500) | pitstop.Overhead(0.02),
    "EverySteps(1) | EverySteps(2) | EverySteps(3)": lambda: (
        pitstop.EverySteps(1) | (pitstop.EverySteps(2) | pitstop.EverySteps(3))
    ),
}


@pytest.mark.parametrize("written", INTERVALS)
def test_an_interval_is_equal_to_what_is_written_alike(written):
    make = INTERVALS[written]
    assert repr(make()) == written
    assert make() == make()
    assert hash(make()) == hash(make())
    assert [other for other in INTERVALS if INTERVALS[other]() == make()] == [written]
    assert make() != written


@pytest.mark.parametrize("written", INTERVALS)
def test_an_interval_survives_pickling_and_copying(written):
    interval = INTERVALS[written]()
    for again in (pickle.loads(pickle.dumps(interval)), copy.copy(interval), copy.deepcopy(interval)):
        assert type(again) is type(interval)
        assert again == interval
        assert repr(again) == written


def test_an_interval_shows_what_it_was_made_of():
    assert pitstop.EverySteps(np.int64(7)).n == 7
    assert pitstop.EveryMinutes(0.1).minutes == 0.1
    assert pitstop.Overhead(0.05).share == 0.05
    with pytest.raises(AttributeError):
        pitstop.Overhead(0.05).share = 0.1


NONSENSE = [
    (pitstop.EverySteps, 0, ValueError, "at least 1"),
    (pitstop.EverySteps, -3, ValueError, "-3"),
    (pitstop.EverySteps, 2**63, ValueError, "2\\*\\*63"),
    (pitstop.EverySteps, 1.5, TypeError, "integer, not float"),
    (pitstop.EverySteps, True, TypeError, "integer, not bool"),
    (pitstop.EveryMinutes, 0, ValueError, "more than 0"),
    (pitstop.EveryMinutes, -1.0, ValueError, "more than 0, not -1"),
    (pitstop.EveryMinutes, math.nan, ValueError, "not nan"),
    (pitstop.EveryMinutes, math.inf, ValueError, "not inf"),
    (pitstop.EveryMinutes, 1e-12, ValueError, "more than 0"),
    (pitstop.EveryMinutes, True, TypeError, "number, not bool"),
    (pitstop.EveryMinutes, "10", TypeError, "number, not str"),
    (pitstop.Overhead, 0.0, ValueError, "more than 0"),
    (pitstop.Overhead, -0.02, ValueError, "more than 0"),
    (pitstop.Overhead, 2, ValueError, "less than 1; 0.02 is two percent"),
    (pitstop.Overhead, 1.0, ValueError, "less than 1"),
    (pitstop.Overhead, math.nan, ValueError, "more than 0"),
    (pitstop.Overhead, True, TypeError, "number, not bool"),
    (pitstop.Overhead, None, TypeError, "number, not NoneType"),
]


@pytest.mark.parametrize(("kind", "value", "error", "why"), NONSENSE)
def test_nonsense_is_refused_with_its_name_and_reason(kind, value, error, why):
    with pytest.raises(error, match=f"^{kind.__name__}.*{why}"):
        kind(value)


@pytest.mark.parametrize("other", [None, 500, pitstop.KeepAll(), pitstop.EverySteps])
def test_only_intervals_are_joined(other):
    with pytest.raises(TypeError):
        pitstop.EverySteps(1) | other
    with pytest.raises(TypeError):
        other | pitstop.EverySteps(1)


@pytest.mark.parametrize("interval", [500, 0.02, "500", pitstop.KeepAll(), pitstop.EverySteps])
def test_what_is_no_interval_is_refused_before_anything_is_made(run, interval):
    with pytest.raises(TypeError, match="interval must be"):
        pitstop.AsyncCheckpointer(run, interval=interval)
    assert not run.exists()


def train(ckpt, steps, state):
    """The steps that were saved."""
    saved = []
    for step in steps:
        state["w"] += 1
        if ckpt.should_save(step):
            ckpt.save(step, state)
            saved.append(step)
    return saved


def test_steps_are_counted_over_a_resume(run):
    state = {"w": np.zeros(3)}
    with pitstop.AsyncCheckpointer(run, interval=pitstop.EverySteps(10)) as ckpt:
        assert ckpt.resume(into=state) is None
        assert train(ckpt, range(1, 25), state) == [10, 20]
        ckpt.save(24, state)
    with pitstop.AsyncCheckpointer(run, interval=pitstop.EverySteps(10)) as ckpt:
        start = ckpt.resume(into=state)
        assert start == 24
        assert train(ckpt, range(start + 1, 60), state) == [34, 44, 54]


def test_going_back_in_a_run_starts_the_count_there(run):
    state = {"w": np.zeros(3)}
    with pitstop.AsyncCheckpointer(run, interval=pitstop.EverySteps(10)) as ckpt:
        assert train(ckpt, range(1, 36), state) == [10, 20, 30]
        ckpt.delete(30)
        start = ckpt.resume(into=state)
        assert start == 20
        assert train(ckpt, range(start + 1, 36), state) == [30]


def test_a_step_is_asked_for_again_until_it_is_saved(run):
    with pitstop.AsyncCheckpointer(run, interval=pitstop.EverySteps(5)) as ckpt:
        assert [ckpt.should_save(step) for step in (1, 5, 5, 7)] == [False, True, True, True]
        with pytest.raises(pitstop.UnsupportedTypeError):
            ckpt.save(7, {"w": object()})
        assert ckpt.should_save(7)
        ckpt.save(7, {"w": 1})
        assert [ckpt.should_save(step) for step in (7, 11, 12)] == [False, False, True]


def test_a_save_whose_retention_function_failed_counts_all_the_same(run):
    def broken(_infos):
        raise ZeroDivisionError

    with pitstop.AsyncCheckpointer(run, retention=broken, interval=pitstop.EverySteps(5)) as ckpt:
        assert [ckpt.should_save(step) for step in (1, 9)] == [False, True]
        with pytest.raises(ZeroDivisionError):
            ckpt.save(9, {"w": 1})
        assert not ckpt.should_save(9)


def test_minutes_go_by_the_clock(run):
    with pitstop.AsyncCheckpointer(run, interval=pitstop.EveryMinutes(1 / 6000)) as ckpt:
        time.sleep(0.02)
        assert ckpt.should_save(1)
    with pitstop.AsyncCheckpointer(run, interval=pitstop.EveryMinutes(60)) as ckpt:
        assert not any(ckpt.should_save(step) for step in range(1000))


def test_either_of_two_intervals_asks(run):
    interval = pitstop.EveryMinutes(60) | pitstop.EverySteps(10)
    with pitstop.AsyncCheckpointer(run, interval=interval) as ckpt:
        assert train(ckpt, range(1, 25), {"w": np.zeros(3)}) == [10, 20]


def test_a_budget_asks_once_steps_are_known_and_not_again_at_once(run):
    with pitstop.AsyncCheckpointer(run, interval=pitstop.Overhead(0.02)) as ckpt:
        assert not any(ckpt.should_save(step) for step in range(100))
        step = 100
        deadline = time.monotonic() + 60
        while not ckpt.should_save(step):
            assert time.monotonic() < deadline, "no save is ever asked for"
            time.sleep(0.01)
            step += 1
        ckpt.save(step, {"w": np.zeros(1000)}).result()
        assert not any(ckpt.should_save(step + more) for more in range(100))


def test_without_an_interval_should_save_says_what_is_missing(checkpointer):
    with pytest.raises(pitstop.CheckpointError, match="needs an interval"):
        checkpointer.should_save(1)


def test_should_save_refuses_what_is_no_step(run):
    with pitstop.AsyncCheckpointer(run, interval=pitstop.EverySteps(5)) as ckpt:
        assert [ckpt.should_save(np.int64(step)) for step in (1, 5)] == [False, True]
        with pytest.raises(TypeError, match="step must be an integer"):
            ckpt.should_save(5.0)
        with pytest.raises(ValueError, match="step must be between"):
            ckpt.should_save(-1)


def test_after_close_should_save_raises(run):
    ckpt = pitstop.AsyncCheckpointer(run, interval=pitstop.EverySteps(5))
    ckpt.close()
    with pytest.raises(pitstop.CheckpointError, match="closed"):
        ckpt.should_save(5)


def test_a_failed_save_is_heard_of_at_the_next_step(run):
    with pitstop.AsyncCheckpointer(run, interval=pitstop.EverySteps(5)) as ckpt:
        with removed(run):
            settle(ckpt.save(1, {"w": 1}))
            with pytest.raises(pitstop.SaveError):
                ckpt.should_save(2)
        assert not ckpt.should_save(2)
        assert ckpt.should_save(6)


def test_with_an_interrupter_should_save_leaves_the_failure_to_the_loop(run):
    interrupter = pitstop.Interrupter()
    ckpt = pitstop.AsyncCheckpointer(run, interrupter=interrupter, interval=pitstop.EverySteps(5))
    with removed(run):
        settle(ckpt.save(1, {"w": 1}))
    assert ckpt.should_save(6)
    assert interrupter.should_stop()
    with pytest.raises(pitstop.SaveError):
        ckpt.close()
