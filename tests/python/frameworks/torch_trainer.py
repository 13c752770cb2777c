"""A small torch run with dropout, AdamW and a schedule; killed and resumed by the kill test."""

import hashlib
import sys

import pitstop
import torch
from torch import nn

STEPS = 12


def made():
    """A fresh state; what is random about it is random on purpose."""
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.3), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS)
    return {"model": model, "optimizer": optimizer, "schedule": schedule, "rng": pitstop.Rng(), "loss": None}


def learn(state):
    """One step on random data."""
    inputs, targets = torch.randn(32, 16), torch.randint(4, (32,))
    loss = nn.functional.cross_entropy(state["model"](inputs), targets)
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
    state["schedule"].step()
    state["loss"] = loss.item()


def digest(state):
    """A digest of every bit that matters for what comes next."""
    summary = hashlib.sha256(repr((state["loss"], state["schedule"].get_last_lr())).encode())
    for name, tensor in state["model"].state_dict().items():
        summary.update(name.encode() + tensor.numpy().tobytes())
    for slot in state["optimizer"].state_dict()["state"].values():
        for name in sorted(slot):
            summary.update(name.encode() + torch.as_tensor(slot[name]).numpy().tobytes())
    summary.update(torch.randn(4).numpy().tobytes())
    return summary.hexdigest()


def train(run=None, report=lambda line: None, steps=STEPS):
    """Trains to `steps`, saving each step in `run` if given; returns a digest of the final bits."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    state = made()
    if run is None:
        for _ in range(steps):
            learn(state)
    else:
        with pitstop.AsyncCheckpointer(run, retention=pitstop.KeepLast(2)) as checkpointer:
            start = checkpointer.resume(into=state) or 0
            report(f"start {start}")
            for step in range(start + 1, steps + 1):
                learn(state)
                report(f"saving {step}")
                checkpointer.save(step, state)
    return digest(state)


if __name__ == "__main__":
    print("final", train(sys.argv[1], lambda line: print(line, flush=True)), flush=True)
