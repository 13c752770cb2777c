"""What a renderer shows of the saves of a checkpointer."""

import weakref

import numpy as np
import pitstop
import pytest
from events import happened, in_short


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
