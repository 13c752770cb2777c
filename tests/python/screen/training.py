"""A training to be looked at: programs for the tests of the screen."""

import shlex
import sys
import textwrap

from terminal import python

PROGRAM = """
import ctypes, itertools, os, signal, subprocess, sys, threading, time, warnings
import pitstop

warnings.simplefilter("ignore", DeprecationWarning)  # of forks

{before}
interrupter = pitstop.Interrupter()
with pitstop.Renderer(interrupter=interrupter) as screen:
    for step in screen.track(itertools.count(1)):
        screen.log(loss=1 / step, accuracy=step)
{body}
        if interrupter.should_stop():
            break
        time.sleep(0.005)
print("message:", interrupter.get_message())
{after}
"""

STILL = """
import pitstop
with pitstop.Renderer() as screen:
    screen.log(loss=1.0)
"""


def endless(body="", before="", after=""):
    """A training that goes on until it is stopped. `body` is done at each step."""
    body = textwrap.indent(textwrap.dedent(body), " " * 8)
    return PROGRAM.format(before=textwrap.dedent(before), body=body, after=textwrap.dedent(after))


def training(body="", before="", after="", arguments=(), **how):
    """Starts one."""
    return python(endless(body, before, after), *arguments, **how)


def command(program):
    """A program in Python, as the words of a shell."""
    return shlex.join([sys.executable, "-c", textwrap.dedent(program)])


def up(terminal):
    """Waits until the screen shows the training."""
    terminal.wait_until(lambda: b"\x1b[?1049h" in terminal.raw, "the whole screen")
    terminal.wait_for("loss")
    return terminal


def ended(terminal, code=0):
    """Waits for the end, after which the terminal is as it was. Returns what was printed on it."""
    assert terminal.wait() == code, terminal.printed
    assert terminal.problems() == [], terminal.printed
    assert terminal.raw.count(b"\x1b[?1049h") == terminal.raw.count(b"\x1b[?1049l")
    return terminal.printed


def stopped(terminal):
    """Stops the training softly, and returns what was printed in the end."""
    terminal.type("q")
    terminal.wait_for("Stop the training?")
    terminal.type("s")
    return ended(terminal)
