"""Cost against the size of the state, and against the number of its tensors, as SVG."""

from pathlib import Path

from .bars import size
from .libraries import REGISTRY
from .results import Results
from .workloads import COUNTS, SIZES


def plot(results: Results, directory: Path) -> list[Path]:
    """Draws what was measured; returns the files."""
    sizes = {nbytes: f"size-{nbytes}" for nbytes in SIZES}
    counts = {count: f"count-{count}" for count in COUNTS}
    bytes_ = next(
        (value for name in counts.values() for library in REGISTRY
         if (value := results.figure(library, name, "state_bytes"))),
        None,
    )  # fmt: skip
    drawn = [
        _draw(results, sizes, "state, bytes (100 tensors)", directory / "cost-by-size.svg"),
        _draw(results, counts, f"tensors ({size(bytes_)} in all)", directory / "cost-by-count.svg"),
    ]
    return [path for path in drawn if path]


def _draw(results: Results, workloads: dict[int, str], axis: str, path: Path) -> Path | None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "pitstop", "font.size": 8})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharex=True, sharey=True)
    drawn = False
    for panel, key, title in zip(panels, ("stalls", "durables"), ("stall", "call to durable"), strict=True):
        for library in REGISTRY:
            points = {at: results.figure(library, name, key) for at, name in workloads.items()}
            points = {at: value for at, value in points.items() if value is not None}
            if points:
                label = REGISTRY[library].label.replace("*", "").replace("`", "")
                panel.plot(
                    list(points), list(points.values()), marker="o", markersize=3, linewidth=1, label=label
                )
                drawn = True
        panel.set(xscale="log", yscale="log", xlabel=axis, ylabel="seconds", title=title)
        panel.grid(alpha=0.3)
    if drawn:
        panels[0].legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path if drawn else None
