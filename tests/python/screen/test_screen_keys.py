"""What a person can do at the screen: look around, stop the training, kill it."""

import os
import signal

import pytest
from terminal import python
from training import ended, stopped, training, up

STOPPING = "Stopping training from user input."
KILLING = "Killing training from user input."


def killed(printed):
    """The traceback of a kill can be read."""
    assert "Traceback (most recent call last):" in printed
    lines = [line for line in printed.splitlines() if line.startswith("pitstop.errors.TrainingKilled: ")]
    assert lines == [f"pitstop.errors.TrainingKilled: {KILLING}"], printed
    assert "panicked" not in printed


def test_metrics_have_tabs_and_plots_to_choose_from_by_key_and_by_mouse():
    with training(columns=140) as terminal:
        up(terminal)
        terminal.wait_for("[loss]")
        terminal.wait_for("[1 whole]")
        terminal.type("\x1b[C")
        terminal.wait_for("[accuracy]")
        terminal.type("\x1b[Z")
        terminal.wait_for("[loss]")
        terminal.type("2")
        terminal.wait_for("[2 recent]")
        terminal.click("accuracy")
        terminal.wait_for("[accuracy]")
        terminal.click("3 summary")
        terminal.wait_for("[3 summary]")
        terminal.type("?")
        terminal.wait_for("Keys")
        terminal.type("\x1b")
        terminal.wait_until_gone("Keys")
        assert "message: " + STOPPING in stopped(terminal)


@pytest.mark.parametrize("cancel", ["c", "\x1b"])
def test_a_stop_can_be_cancelled(cancel):
    with training() as terminal:
        up(terminal).type("q")
        terminal.wait_for("Stop the training?")
        terminal.type(cancel)
        terminal.wait_until_gone("Stop the training?")
        before = terminal.screen.display
        terminal.wait_until(lambda: terminal.screen.display != before, "a further step")
        assert "message: " + STOPPING in stopped(terminal)


def test_pasted_text_is_no_keys():
    with training() as terminal:
        up(terminal).type("\x1b[200~qk\x1b[201~?")
        terminal.wait_for("Keys")
        terminal.type("c")
        assert "message: " + STOPPING in stopped(terminal)


def test_what_something_else_has_drawn_on_the_screen_goes_with_control_l():
    with training("if step == 20: open('/dev/tty', 'w').write('\\x1b[Hdrawn here')") as terminal:
        up(terminal)
        terminal.wait_for("drawn here")
        terminal.type("\x0c")
        terminal.wait_until_gone("drawn here")
        terminal.wait_for("[loss]")
        stopped(terminal)


LOOPS = {
    "that tells the screen": "",
    "that tells it nothing": "while True: sum(range(1000))",
    "that sleeps": "while True: time.sleep(1000)",
    "that waits": "threading.Event().wait()",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_kill_reaches_a_loop(loop):
    with training(LOOPS[loop]) as terminal:
        up(terminal).type("q")
        terminal.wait_for("Stop the training?")
        terminal.type("k")
        killed(ended(terminal, 1))


def test_the_next_run_in_the_process_does_not_know_of_a_kill():
    with python(
        """
        import itertools, time, pitstop

        def train(name):
            with pitstop.Renderer() as screen:
                for step in screen.track(itertools.count(1)):
                    screen.log({name: step})
                    time.sleep(0.005)
                    if screen.interrupter.should_stop():
                        return screen.interrupter.get_message()

        try:
            train("first")
        except pitstop.TrainingKilled as error:
            print("first:", error)
        print("second:", train("second"))
        """
    ) as terminal:
        terminal.wait_for("[first]")
        terminal.type("qk")
        terminal.wait_for("[second]")
        terminal.type("qs")
        ended(terminal)
        assert f"first: {KILLING}".encode() in terminal.raw
        assert f"second: {STOPPING}" in terminal.printed
        assert terminal.raw.count(b"\x1b[?1049h") == 2


def test_the_first_ctrl_c_stops_and_the_second_one_kills():
    with training() as terminal:
        up(terminal).type("\x03")
        assert "message: " + STOPPING in ended(terminal)
    with training("while True: time.sleep(1000)") as terminal:
        up(terminal).type("\x03")
        terminal.wait_for(STOPPING)
        terminal.type("\x03")
        killed(ended(terminal, 1))


def test_an_interrupt_from_elsewhere_stops_and_the_second_one_kills():
    with training() as terminal:
        os.kill(up(terminal).pid, signal.SIGINT)
        assert "message: Stopping training: received SIGINT." in ended(terminal)
    with training("while True: time.sleep(1000)") as terminal:
        os.kill(up(terminal).pid, signal.SIGINT)
        terminal.wait_for("received SIGINT")
        os.kill(terminal.pid, signal.SIGINT)
        killed(ended(terminal, 1))


def test_an_interrupt_is_python_s_own_for_a_loop_that_cannot_be_stopped():
    with python(
        """
        import time, pitstop

        with pitstop.Renderer() as screen:
            screen.log(loss=1)
            time.sleep(1000)
        """
    ) as terminal:
        os.kill(up(terminal).pid, signal.SIGINT)
        # Python ends itself by the signal then, for the shell to see.
        assert "KeyboardInterrupt" in ended(terminal, -signal.SIGINT)


def test_a_persistent_screen_stays_until_it_is_left():
    for key in "xq":
        with python(
            """
            import pitstop

            with pitstop.Renderer(epochs=1, persistent=True) as screen:
                for batch in screen.track(range(10)):
                    screen.log(loss=batch)
            print("left")
            """
        ) as terminal:
            up(terminal)
            terminal.wait_for("to leave")
            terminal.type("z")
            terminal.type(key)
            assert "left" in ended(terminal)
