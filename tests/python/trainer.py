"""A small training run with every kind of state in it; the kill tests kill and resume it."""

import hashlib
import random
import sys

import numpy as np
import pitstop

STEPS = 16


class Momentum:
    """An optimizer that hands out and takes back its state as torch's do."""

    def __init__(self, weights):
        self.weights = weights
        self.velocity = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.count = 0

    def step(self, gradients):
        self.count += 1
        for name, gradient in gradients.items():
            self.velocity[name] *= 0.9
            self.velocity[name] += gradient
            self.weights[name] -= 0.01 * self.velocity[name]

    def state_dict(self):
        return {"velocity": self.velocity, "count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]
        for name, velocity in state["velocity"].items():
            self.velocity[name][...] = velocity


def train(run=None, report=lambda line: None):
    """Trains for `STEPS` steps, saving each one in `run` if given; returns a digest of the final bits."""
    random.seed(7)
    np.random.seed(7)
    weights = {"layer.weight": np.zeros((128, 512)), "layer.bias": np.zeros(512)}
    state = {"model": weights, "optimizer": Momentum(weights), "rng": pitstop.Rng(), "loss": None}
    if run is None:
        for step in range(1, STEPS + 1):
            _learn(state, step)
    else:
        with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2)) as checkpointer:
            _train_and_save(checkpointer, state, report)
    return _digest(state)


def _train_and_save(checkpointer, state, report):
    start = checkpointer.resume(into=state) or 0
    report(f"start {start}")
    waiting = []
    for step in range(start + 1, STEPS + 1):
        _learn(state, step)
        report(f"saving {step}")
        waiting.append(checkpointer.save(step, state))
        while waiting and waiting[0].done():
            report(f"committed {waiting.pop(0).result().step}")


def _learn(state, step):
    weights = state["model"]
    gradients = {
        name: np.random.standard_normal(weight.shape) * random.random() + 0.1 * weight
        for name, weight in weights.items()
    }
    state["optimizer"].step(gradients)
    state["loss"] = float(weights["layer.weight"].sum()) + step


def _digest(state):
    digest = hashlib.sha256(repr((state["loss"], state["optimizer"].count)).encode())
    for arrays in (state["model"], state["optimizer"].velocity):
        for name in sorted(arrays):
            digest.update(arrays[name].tobytes())
    digest.update(repr((random.random(), np.random.random())).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    print("final", train(sys.argv[1], lambda line: print(line, flush=True)), flush=True)
