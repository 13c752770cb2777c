"""Train a classifier on handwritten digits, saving in the background, and continue after a kill.

    python examples/train_digits.py
    python examples/train_digits.py --resume    # after Ctrl-C, a crash, kill -9, a reboot
    python examples/train_digits.py --screen    # with the training screen: q stops or kills

The network, its gradients and Adam are written in NumPy. Batches and dropout draw from one
NumPy generator, so a resumed run repeats the uninterrupted one only if the generator's state
comes back with the weights. The last line printed is a digest of the final weights: it is the
same however often the run was stopped.
"""

import argparse
import contextlib
import hashlib
import statistics
import time

import numpy as np
import pitstop
from sklearn.datasets import load_digits

BATCH = 64
KEEP = np.float32(0.8)  # the part of the hidden units that dropout leaves on


def new_model(hidden, rng):
    """Weights and biases of a 64 -> hidden -> hidden -> 10 network."""
    model = {}
    for i, (inputs, outputs) in enumerate([(64, hidden), (hidden, hidden), (hidden, 10)], start=1):
        scale = np.float32(np.sqrt(2 / inputs))
        model[f"w{i}"] = scale * rng.standard_normal((inputs, outputs), dtype=np.float32)
        model[f"b{i}"] = np.zeros(outputs, dtype=np.float32)
    return model


def forward(model, images, rng=None):
    """The layers' outputs and the log-probabilities; with `rng`, under dropout."""
    layers = [images]
    for i in (1, 2):
        out = np.maximum(layers[-1] @ model[f"w{i}"] + model[f"b{i}"], 0)
        if rng is not None:
            out *= (rng.random(out.shape, dtype=np.float32) < KEEP) / KEEP
        layers.append(out)
    logits = layers[-1] @ model["w3"] + model["b3"]
    logits -= logits.max(axis=1, keepdims=True)
    return layers, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def gradients(model, images, labels, rng):
    """The gradient of the mean cross-entropy, by name; and its value, under dropout."""
    layers, log_probs = forward(model, images, rng)
    loss = -log_probs[np.arange(len(labels)), labels].mean()
    delta = np.exp(log_probs)
    delta[np.arange(len(labels)), labels] -= 1
    delta /= len(labels)
    grads = {}
    for i in (3, 2, 1):
        grads[f"w{i}"] = layers[i - 1].T @ delta
        grads[f"b{i}"] = delta.sum(axis=0)
        if i > 1:
            delta = (delta @ model[f"w{i}"].T) * (layers[i - 1] > 0) / KEEP
    return grads, loss


def adam_step(model, optimizer, grads, lr=1e-3, beta1=0.9, beta2=0.999):
    """Move the weights in place, so that `state` below keeps pointing at them."""
    optimizer["step"] += 1
    rate = np.float32(lr * np.sqrt(1 - beta2 ** optimizer["step"]) / (1 - beta1 ** optimizer["step"]))
    for name, grad in grads.items():
        mean, square = optimizer["mean"][name], optimizer["square"][name]
        mean += np.float32(1 - beta1) * (grad - mean)
        square += np.float32(1 - beta2) * (grad * grad - square)
        model[name] -= rate * mean / (np.sqrt(square) + np.float32(1e-8))


def evaluate(model, images, labels):
    """Mean cross-entropy and accuracy, without dropout."""
    _, log_probs = forward(model, images)
    loss = -log_probs[np.arange(len(labels)), labels].mean()
    return float(loss), float((log_probs.argmax(axis=1) == labels).mean())


def digest(model):
    """One hash over every bit of the weights."""
    return hashlib.sha256(b"".join(model[name].tobytes() for name in sorted(model))).hexdigest()


def show(args, start, interrupter, ckpt):
    """The training screen, if it was asked for."""
    if not args.screen:
        return contextlib.nullcontext()
    return pitstop.Renderer(steps=args.steps, step=start, interrupter=interrupter, checkpointer=ckpt)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Train on handwritten digits, with checkpoints.")
    parser.add_argument("--dir", default="runs/digits", help="where the checkpoints go")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--hidden", type=int, default=256, help="units in each hidden layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--screen", action="store_true", help="show the run, in a terminal on a whole screen")
    parser.add_argument("--pace", type=float, default=0, metavar="SECONDS", help="wait after each step")
    return parser.parse_args()


def main():
    args = parse_arguments()
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target
    train, held_out = slice(0, 1400), slice(1400, None)

    rng = np.random.default_rng(args.seed)
    model = new_model(args.hidden, rng)
    optimizer = {
        "step": 0,
        "mean": {name: np.zeros_like(weight) for name, weight in model.items()},
        "square": {name: np.zeros_like(weight) for name, weight in model.items()},
    }
    state = {"model": model, "optimizer": optimizer, "rng": pitstop.Rng(rng), "best": None}
    stalls = []  # seconds that each `save` held up the training loop

    with (
        pitstop.Interrupter.on_signals() as interrupter,
        pitstop.AsyncCheckpointer(
            args.dir,
            interrupter=interrupter,
            retention=pitstop.KeepLast(3) | pitstop.KeepBest("val_loss"),
        ) as ckpt,
    ):
        start = ckpt.resume(into=state) if args.resume else None
        if start is not None:
            print(f"resumed from: step {start}", flush=True)
        elif ckpt.latest() is not None:
            raise SystemExit(f"{args.dir} holds checkpoints: add --resume, or choose another --dir")

        with show(args, start or 0, interrupter, ckpt) as screen:
            if screen:
                screen.register("loss", goal="min")
                screen.register("accuracy", unit="%", goal="max")
            steps = range((start or 0) + 1, args.steps + 1)
            for step in screen.track(steps, done=start or 0) if screen else steps:
                batch = rng.permutation(train.stop)[:BATCH]
                grads, loss = gradients(model, images[batch], labels[batch], rng)
                adam_step(model, optimizer, grads)
                if screen:
                    screen.log(loss=loss)

                if step % args.save_every == 0 or step == args.steps or interrupter.should_stop():
                    loss, accuracy = evaluate(model, images[held_out], labels[held_out])
                    state["best"] = loss if state["best"] is None else min(loss, state["best"])
                    began = time.perf_counter()
                    ckpt.save(step, state, metrics={"val_loss": loss})
                    stalls.append(time.perf_counter() - began)
                    print(f"step {step}: validation loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)
                    if screen:
                        screen.log(loss=loss, accuracy=100 * accuracy, split="valid")
                if interrupter.should_stop():
                    print(f"stopped at step {step}: {interrupter.get_message()}")
                    break
                time.sleep(args.pace)

    # Leaving `with` waited for the last save, and would have raised had one failed.
    loss, accuracy = evaluate(model, images[held_out], labels[held_out])
    print(f"checkpoints committed: {len(stalls)}")
    if stalls:
        print(f"stall per save: {statistics.median(stalls) * 1e3:.2f} ms (median)")
    print(f"final: validation loss {loss:.6f}, accuracy {accuracy:.1%}")
    print(f"weights: sha256 {digest(model)}")


if __name__ == "__main__":
    main()
