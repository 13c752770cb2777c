"""However a process lives and ends: its saves are whole, its directory is free, and nobody hangs.

Also see test_fork.py, test_kill.py, test_ctrl_c.py, test_interrupter.py.
"""

import os
import pickle
import signal

import child
import disk
import pitstop
import pytest

# --- children -------------------------------------------------------------------------------------

FORKS = """
    import os, sys, warnings, numpy as np, pitstop
    warnings.simplefilter("ignore", DeprecationWarning)
    state = {"w": np.zeros(1 << 18)}
    with pitstop.AsyncCheckpointer(sys.argv[1], retention=pitstop.KeepLast(2)) as checkpointer:
        for step in range(1, 16):
            state["w"][:] = step
            handle = checkpointer.save(step, state)
            children = []
            for number in range(3):
                child = os.fork()
                if child == 0:
                    refused = 0
                    for call in (
                        lambda: checkpointer.save(99, state),
                        lambda: checkpointer.delete(step),
                        lambda: handle.result(),
                        lambda: checkpointer.close(),
                    ):
                        try:
                            call()
                        except pitstop.CheckpointError as error:
                            refused += "belongs to process" in str(error)
                    if number == 0:
                        del checkpointer, handle  # and whatever else there is, when the interpreter ends
                    sys.exit(refused) if number else os._exit(refused)
                children.append(child)
            for child in children:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
            assert handle.result().step == step
        print(checkpointer.steps())
"""


def test_children_forked_at_any_moment_of_a_save_refuse_and_end(run):
    assert child.run(FORKS, run) == "[14, 15]\n"
    assert disk.whole_steps(run) == [14, 15]
    assert disk.hidden(run) == {".lock"}


def test_a_child_that_ends_sweeps_nothing_that_its_parent_is_writing(run):
    """What waits under hidden names to be written over is the parent's."""
    output = child.run(
        """
        import gc, os, sys, warnings, numpy as np, pitstop
        warnings.simplefilter("ignore", DeprecationWarning)
        hidden = lambda: sorted(name for name in os.listdir(sys.argv[1]) if name.startswith("."))
        rule = pitstop.KeepLast(1)
        checkpointer = pitstop.AsyncCheckpointer(sys.argv[1], retention=rule, incremental=False)
        for step in (1, 2, 3):
            checkpointer.save(step, {"w": np.full(1 << 18, float(step))}).result()
        before = hidden()
        child = os.fork()
        if child == 0:
            del checkpointer
            gc.collect()
            sys.exit()
        os.waitpid(child, 0)
        print(hidden() == before)
        checkpointer.save(4, {"w": np.full(1 << 18, 4.0)}).result()
        checkpointer.close()
        print(hidden())
        """,
        run,
    )
    assert output.splitlines() == ["True", "['.lock']"]
    assert disk.whole_steps(run) == [4]


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.Popen(['sleep', '60'], close_fds=False, stdout=subprocess.DEVNULL).pid",
        "os.posix_spawn('/bin/sleep', ['sleep', '60'], os.environ)",
        "multiprocessing.get_context('fork').Process(target=tell_and_sleep)",
    ],
    ids=["subprocess", "posix_spawn", "multiprocessing"],
)
def test_whatever_outlives_a_killed_parent_does_not_keep_its_directory(run, start):
    process = child.start(
        f"""
        import multiprocessing, os, subprocess, sys, time, warnings, numpy as np, pitstop
        warnings.simplefilter("ignore", DeprecationWarning)
        checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
        checkpointer.save(1, {{"w": np.ones(10)}}).result()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        def tell_and_sleep():
            # A forked child tells itself: by then it has let go of what it was born with.
            print("started", os.getpid(), flush=True)
            time.sleep(60)
        started = {start}
        if isinstance(started, multiprocessing.process.BaseProcess):
            started.start()
        else:
            print("started", started, flush=True)
        time.sleep(60)
        """,
        run,
    )
    survivor = int(child.read_until(process, "started")[-1].split()[1])
    try:
        process.kill()
        process.wait()
        os.kill(survivor, 0)  # it lives
        with pitstop.AsyncCheckpointer(run) as checkpointer:
            assert checkpointer.latest() == 1
    finally:
        os.kill(survivor, signal.SIGKILL)
        process.communicate()


def test_a_checkpointer_cannot_be_sent_to_another_process(checkpointer):
    handle = checkpointer.save(1, {"w": 1})
    for thing in (checkpointer, handle):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(thing)


# --- endings --------------------------------------------------------------------------------------

BEGIN = """
    import atexit, os, sys, threading, time, numpy as np, pitstop
    checkpointer = pitstop.AsyncCheckpointer(sys.argv[1])
    checkpointer.save(1, {"w": np.full(10, 1.0)}).result()
    large = {"w": np.full(4 << 20, 2.0)}
"""

ENDINGS = {
    "a save in the finalizer of an object that lives as long as its module": (
        """
        class Late:
            def __del__(self):
                try:
                    checkpointer.save(3, {"w": 3})
                except Exception as error:
                    os.write(1, f"{type(error).__name__}\\n".encode())
        late = Late()
        checkpointer.save(2, large)
        """,
        0,
        {(1, 2)},
    ),
    "a save at exit, after the last word": (
        """
        checkpointer.save(2, large)
        @atexit.register
        def last_save():
            checkpointer.save(3, {"w": 3})
        """,
        0,
        {(1, 2, 3)},
    ),
    "sys.exit in a thread that saves, and another in the main one": (
        """
        def work():
            checkpointer.save(2, large)
            sys.exit(4)
        threading.Thread(target=work).start()
        sys.exit(3)
        """,
        3,
        {(1, 2)},
    ),
    "an exception hook that raises": (
        """
        def hook(*_):
            raise ValueError("the hook")
        sys.excepthook = hook
        checkpointer.save(2, large)
        raise ArithmeticError
        """,
        1,
        {(1, 2)},
    ),
    "an exception in a finalizer while the interpreter shuts down": (
        """
        class Broken:
            def __del__(self):
                raise RuntimeError("too late")
        sys.broken = Broken()
        checkpointer.save(2, large)
        """,
        0,
        {(1, 2)},
    ),
    "os._exit in a thread while another waits": (
        """
        checkpointer.save(2, large)
        threading.Timer(0.002, os._exit, (5,)).start()
        checkpointer.wait()
        time.sleep(60)
        """,
        5,
        {(1,), (1, 2)},
    ),
    "sys.exit inside with": (
        """
        with checkpointer:
            checkpointer.save(2, large)
            sys.exit(7)
        """,
        7,
        {(1, 2)},
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_with_its_saves_whole(run, ending):
    program, code, expected = ENDINGS[ending]
    process = child.start(BEGIN + program.replace("\n        ", "\n    "), run)
    ended, _, errors = child.end(process)
    assert ended == code, errors
    assert tuple(disk.whole_steps(run)) in expected
    with pitstop.AsyncCheckpointer(run):
        pass
    assert disk.hidden(run) == {".lock"}


@pytest.mark.parametrize("daemons", [1, 4])
@pytest.mark.parametrize("attempt", range(3))
def test_daemon_threads_that_go_on_saving_while_the_interpreter_ends(run, daemons, attempt):
    """They are frozen wherever they are. What they had been told is committed is there, and nobody hangs."""
    process = child.start(
        """
        import itertools, os, sys, threading, time, numpy as np, pitstop
        checkpointer = pitstop.AsyncCheckpointer(sys.argv[1], retention=pitstop.KeepLast(3))
        numbers = itertools.count(1)
        first = threading.Event()
        def work():
            while True:
                step = next(numbers)
                try:
                    checkpointer.save(step, {"w": np.full(1 << 16, step)}).result()
                except pitstop.CheckpointError as error:
                    assert "closed" in str(error)
                    return
                os.write(1, f"{step}\\n".encode())
                first.set()
        for _ in range(int(sys.argv[2])):
            threading.Thread(target=work, daemon=True).start()
        first.wait()
        time.sleep(float(sys.argv[3]))
        """,
        run,
        daemons,
        0.007 * attempt,
    )
    code, output, errors = child.end(process)
    assert code == 0, errors
    reported = sorted(int(line) for line in output.split())
    steps = disk.whole_steps(run)
    assert reported
    assert set(reported[-1:]) <= set(steps)


def test_a_thread_that_is_no_daemon_saves_to_its_end(run):
    child.run(
        BEGIN
        + """
    def work():
        for step in (2, 3, 4):
            time.sleep(0.02)
            checkpointer.save(step, large)
    threading.Thread(target=work).start()
    """,
        run,
    )
    assert disk.whole_steps(run) == [1, 2, 3, 4]


# --- signals --------------------------------------------------------------------------------------

LOOP = """
    import os, signal, sys, time, numpy as np, pitstop
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    large = {"w": np.zeros(4 << 20)}
    with pitstop.Interrupter.on_signals() as interrupter, \\
         pitstop.AsyncCheckpointer(sys.argv[1], interrupter=interrupter, incremental=False) as checkpointer:
        for step in range(1, 10**6):
            large["w"][:] = step
            handle = checkpointer.save(step, large)
            print("saving", step, flush=True)
            if interrupter.should_stop():
                break
    print("ended at", step, "chained", len(seen), "done", handle.done())
    print("restored", signal.getsignal(signal.SIGTERM).__name__, signal.getsignal(signal.SIGINT).__name__)
"""


@pytest.mark.parametrize("times", [1, 5])
def test_sigterm_during_a_save_only_sets_the_flag_and_chains(run, times):
    """However often it comes, the save in flight is finished, and so is the last one."""
    process = child.start(LOOP, run)
    child.read_until(process, "saving 2")
    for _ in range(times):
        process.terminate()
    code, output, errors = child.end(process)
    assert (code, errors) == (0, "")
    ended, restored = output.splitlines()[-2:]
    assert restored == "restored <lambda> default_int_handler"
    _, _, step, _, chained, _, done = ended.split()
    assert 1 <= int(chained) <= times
    assert done == "True"
    assert disk.whole_steps(run)[-1] == int(step)


def test_a_second_ctrl_c_raises_and_leaves_every_save_whole(run):
    process = child.start(
        """
        import sys, time, numpy as np, pitstop
        large = {"w": np.zeros(4 << 20)}
        with pitstop.Interrupter.on_signals() as interrupter, \\
             pitstop.AsyncCheckpointer(sys.argv[1], interrupter=interrupter) as checkpointer:
            for step in range(1, 10**6):
                large["w"][:] = step
                checkpointer.save(step, large)
                print("saving", step, interrupter.should_stop(), flush=True)  # and does not stop
        """,
        run,
    )
    child.read_until(process, "saving 2")
    process.send_signal(signal.SIGINT)
    stubborn = child.read_until(process, "saving 4")
    assert child.read_until(process, "saving")[-1].endswith("True"), stubborn
    process.send_signal(signal.SIGINT)
    code, _, errors = child.end(process)
    assert code == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert disk.whole_steps(run)
    with pitstop.AsyncCheckpointer(run) as checkpointer:
        checkpointer.save(10**7, {"w": 1})
    assert disk.hidden(run) == {".lock"}


def test_signals_in_a_forked_child_do_not_reach_the_interrupter_of_its_parent():
    with pitstop.Interrupter.on_signals() as interrupter:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.raise_signal(signal.SIGTERM)
                code = 0 if interrupter.should_stop() else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not interrupter.should_stop()


def test_files_do_not_get_the_numbers_of_closed_standard_streams(run):
    """A daemon has closed them, and what it printed went into its checkpoints."""
    program = """
        import os, sys, numpy as np, pitstop

        def taken():
            numbers = []
            for number in range(3):
                try:
                    os.fstat(number)
                except OSError:
                    continue
                numbers.append(number)
            return numbers

        state = {"model": {"w": np.arange(8 << 20, dtype=np.float64)}}
        report = os.dup(1)
        os.closerange(0, 3)
        with pitstop.AsyncCheckpointer(sys.argv[1]) as checkpointer:
            found = taken()  # by the lock
            handle = checkpointer.save(1, state)
            while not handle.done():
                begun, numbers, (done, total) = handle.progress()[0], taken(), handle.progress()
                if 0 < begun and done < total:
                    found += numbers  # by the file that is being written
            handle.result()
            back = checkpointer.restore()
        same = (back["model"]["w"] == state["model"]["w"]).all()
        os.write(report, f"{sorted(set(found))} {same}".encode())
    """
    assert child.run(program, run) == "[] True"
