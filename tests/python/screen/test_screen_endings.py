"""However a program ends, its terminal is as it was, and what it printed is there."""

import os
import signal

import pytest
from terminal import python
from training import ended, stopped, training, up


def test_the_traceback_of_an_exception_can_be_read():
    with training("if step == 20: raise ValueError('broken')", "print('before')") as terminal:
        printed = ended(terminal, 1)
        assert "Traceback (most recent call last):" in printed
        assert "ValueError: broken" in printed
        assert "panicked" not in printed


def test_who_reads_what_is_typed_finds_its_end_while_the_screen_is_up():
    """It waited for ever, for keys that the screen had taken; and no key of the screen worked any more."""
    with training("if step == 20: input('name? ')", before="print('tty before:', os.isatty(0))") as terminal:
        printed = ended(terminal, 1)
        assert "EOFError" in printed
    after = "print('tty after:', os.isatty(0)); print('read', input())"
    with training("if step == 20: interrupter.stop()", after=after) as terminal:
        terminal.wait_for("tty after: True")
        terminal.type("typed\n")
        assert "read typed" in ended(terminal, 0)


def test_sys_exit_ends_the_program_with_its_code():
    with training("if step == 20: print('bye'); sys.exit(7)") as terminal:
        assert "bye" in ended(terminal, 7)


def test_sys_exit_and_exceptions_in_other_threads_end_only_those():
    with training(
        """
        if step == 20:
            def broken():
                raise ValueError("a thread broke")
            for target in (sys.exit, broken):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join()
            print("it goes on")
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("it goes on")
        printed = stopped(terminal)
        assert "ValueError: a thread broke" in printed
        assert "message: Stopping training from user input." in printed


# By default these end a process. Python has a handler only for SIGINT, and ignores SIGPIPE.
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGXCPU", "SIGABRT", "SIGSEGV"])
def test_a_signal_ends_the_program_as_ever(name):
    number = signal.Signals[name]
    with training("if step == 1: print('printed before')") as terminal:
        up(terminal)
        terminal.wait_for("printed before")
        os.kill(terminal.pid, number)
        assert ended(terminal, -number).count("printed before") == 1


CRASHES = {
    "an address that is none": ("ctypes.string_at(0)", -signal.SIGSEGV),
    "abort": ("os.abort()", -signal.SIGABRT),
    "exit of C": ("ctypes.CDLL(None).exit(4)", 4),
}


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_ends_the_program_as_ever(crash):
    body, code = CRASHES[crash]
    with training(f"if step == 20: print('printed before'); {body}") as terminal:
        assert "printed before" in ended(terminal, code)


def test_a_signal_that_the_interrupter_handles_stops_the_training():
    with python(
        """
        import itertools, time, pitstop

        with pitstop.Interrupter.on_signals() as interrupter:
            with pitstop.Renderer(interrupter=interrupter) as screen:
                for step in screen.track(itertools.count(1)):
                    screen.log(loss=1 / step)
                    if interrupter.should_stop():
                        break
                    time.sleep(0.005)
            print("message:", interrupter.get_message())
        """
    ) as terminal:
        os.kill(up(terminal).pid, signal.SIGTERM)
        assert "message: Stopping training: received SIGTERM." in ended(terminal)


def test_a_signal_whose_default_was_put_back_meanwhile_ends_the_program_in_good_order():
    with training(
        """
        if step == 1:
            with pitstop.Interrupter.on_signals():
                print("handled")
            seen = time.monotonic()
        if time.monotonic() - seen > 3:
            print("not handled any more")
        """
    ) as terminal:
        up(terminal)
        terminal.wait_for("not handled any more")
        os.kill(terminal.pid, signal.SIGTERM)
        ended(terminal, -signal.SIGTERM)


def test_handlers_of_the_program_are_left_alone_and_those_of_the_screen_go_with_it():
    with training(
        before="""
        signal.signal(signal.SIGUSR1, lambda *_: print("handled by the program"))
        def actions():
            lines = open("/proc/self/status").read().splitlines()
            numbers = [line.split()[1] for line in lines if line.startswith(("SigCgt", "SigIgn"))]
            # Those above are the threads' own.
            return [int(number, 16) % (1 << 31) for number in numbers]
        first = actions()
        """,
        after="""
        print("the same handlers:", actions() == first)
        os.kill(os.getpid(), signal.SIGUSR1)
        """,
    ) as terminal:
        os.kill(up(terminal).pid, signal.SIGUSR1)
        terminal.wait_for("handled by the program")
        printed = stopped(terminal)
        assert printed.count("handled by the program") == 2
        if os.path.exists("/proc/self/status"):
            assert "the same handlers: True" in printed


def test_a_script_that_forgets_the_screen_gets_its_terminal_back():
    with python(
        """
        import pitstop, time

        screen = pitstop.Renderer()
        screen.start()
        screen.log(loss=1.0)
        print("printed before")
        time.sleep(0.3)
        """
    ) as terminal:
        assert "printed before" in ended(terminal)
