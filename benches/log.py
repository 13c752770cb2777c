"""What `Renderer.log` costs the training loop, in microseconds a call.

    python benches/log.py

The median of some rounds, with the events written to a file. torch is measured if it is there.
"""

import functools
import importlib
import statistics
import tempfile
import time

import numpy as np
import pitstop

CALLS, ROUNDS = 5_000, 21


def cost(call):
    """Microseconds a call of `call`; between rounds the screen catches up."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - began) / CALLS * 1e6)
        time.sleep(0.05)
    return statistics.median(rounds)


def main():
    ones = {"float": 0.5, "numpy.float32": np.float32(0.5), "0-d array of NumPy": np.array(0.5)}
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        print("torch: not there")
    else:
        ones["0-d tensor of torch"] = torch.tensor(0.5)
    found = []
    with tempfile.TemporaryDirectory() as run, pitstop.Renderer(directory=run, plain=True) as screen:
        for name, one in ones.items():
            metrics = ({f"metric_{number}": one for number in range(count)} for count in (1, 3, 10))
            costs = [cost(functools.partial(screen.log, **some)) for some in metrics]
            found.append(f"{name}: 1, 3, 10 values: " + ", ".join(f"{cost:.2f}" for cost in costs))
        items = iter(screen.track(range(10**9), "valid"))
        found.append(f"an item of track: {cost(lambda: next(items)):.2f}")
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
