"""What the renderer of a run has written of it."""

import json
import time


def written(directory):
    """All of it that is whole."""
    path = directory / "events.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def happened(directory, *kinds):
    """The same without the times; all kinds that are important if none are named."""
    kinds = kinds or ("start", "split_start", "split_end", "epoch", "named", "end")
    told = written(directory)
    for one in told:
        del one["at"]
    return [one for one in told if one["event"] in kinds]


def in_short(directory):
    """The course of a run in a line, such as `start 0, +train 0/3, -, epoch 1, end`."""
    words = []
    for one in happened(directory):
        match one["event"]:
            case "start":
                words.append(f"start {one['step']}")
            case "split_start":
                words.append(f"+{one['split']} {one['done']}/{one.get('total')}")
            case "split_end":
                words.append("-")
            case "epoch":
                words.append(f"epoch {one['epoch']}")
            case other:
                words.append(other)
    return ", ".join(words)


def told(directory, course):
    """Waits until the course of a run is that. What happens within a quarter of a second is written once."""
    deadline = time.monotonic() + 60
    while in_short(directory) != course and time.monotonic() < deadline:
        time.sleep(0.02)
    assert in_short(directory) == course
    return course
