"""What a renderer prints where there is no terminal, and what becomes of it."""

import child
import pitstop


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


def test_a_run_that_was_killed_has_not_failed():
    code, output, _ = child.end(
        child.start(
            """
            import pitstop
            with pitstop.Renderer() as screen:
                screen.log(loss=0.5)
                raise pitstop.TrainingKilled
            """
        )
    )
    assert code == 1
    (ending,) = (line for line in output.splitlines() if line.startswith("the run was killed after "))
    assert ending.endswith(": Killing training from user input.")
    assert "failed" not in output


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
