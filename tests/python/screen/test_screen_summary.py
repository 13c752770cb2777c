"""What is left on the terminal when the screen is gone."""

import pytest
from terminal import python
from training import ended, training


@pytest.mark.parametrize("end", ["", "\n"], ids=["not ended", "ended"])
def test_the_summary_begins_a_line_of_its_own(end):
    """It stood behind a last line that was not ended, as that of a progress bar."""
    last = f"print('the last', end={end!r}, flush=True)"
    with training(f"if step == 20: {last}; interrupter.stop()") as terminal:
        printed = ended(terminal)
    assert "the last\nthe run was stopped" in printed


def test_the_summary_fits_into_a_narrow_terminal():
    with training("if step == 20: interrupter.stop()", columns=50) as terminal:
        printed = ended(terminal)
    rows = [line for line in printed.splitlines() if line.startswith("  ")]
    assert [row.split()[0] for row in rows] == ["loss", "lowest", "highest", "accuracy", "lowest", "highest"]
    assert max(map(len, rows)) <= 50
    assert "    lowest 0.05 at step 20" in rows
    assert "    highest 20 at step 20" in rows


def test_the_summary_of_a_wide_terminal_is_a_table():
    with training("if step == 20: interrupter.stop()", columns=120) as terminal:
        printed = ended(terminal)
    titles = "metric split last lowest at step highest at step"
    table = [" ".join(line.split()) for line in printed.splitlines() if line.startswith("  ")]
    assert table == [titles, "loss train 0.05 0.05 20 1 1", "accuracy train 20 1 1 20 20"]


def test_a_killed_run_is_said_to_be_killed():
    with training("while True: time.sleep(1000)") as terminal:
        terminal.wait_for("loss")
        terminal.type("qk")
        printed = ended(terminal, 1)
    assert "the run was killed after " in printed
    assert "the run failed" not in printed


def test_after_a_reset_the_first_ctrl_c_stops_again(tmp_path):
    """It killed: the screen had counted on."""
    go_on = tmp_path / "go on"
    stopping = "Stopping training from user input."
    with python(
        """
        import os, sys, time, pitstop

        with pitstop.Renderer() as screen:
            screen.log(loss=1.0)
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.005)
            screen.interrupter.reset()
            while not screen.interrupter.should_stop():
                time.sleep(0.005)
        print("message:", screen.interrupter.get_message())
        """,
        go_on,
    ) as terminal:
        terminal.wait_for("loss")
        terminal.type("\x03")
        terminal.wait_for(stopping)
        go_on.touch()
        terminal.wait_until_gone(stopping)
        terminal.type("\x03")
        assert f"message: {stopping}" in ended(terminal)
