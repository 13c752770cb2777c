"""Tables for people."""

from collections.abc import Iterator
from pathlib import Path

from .bars import bars, seconds, size
from .libraries import REGISTRY
from .loops import LOOPS
from .results import Results

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def report(results: Results) -> str:
    """Everything, as Markdown."""
    parts = [_head(results), _bars(results), _limits(results)]
    parts += [_library_table(results, workload) for workload in ("W1", "W2")]
    parts += [_partial_table(results), _troubles(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_into(path: Path, text: str) -> None:
    """Puts the report between its marks in a page."""
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def _table(header: list[str], rows: Iterator[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _head(results: Results) -> str:
    head = results.head()
    machine = "; ".join(f"{key}: {value}" for key, value in head["machine"].items())
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    measured = f"Measured on {head['date']} with `compare.py {head['arguments']}`."
    if head["quick"]:
        measured += " **Small states, one round: this shows that it runs, and its figures mean nothing.**"
    left_out = [library.label for name, library in REGISTRY.items() if not results.of(name, "W1")]
    others = f"\n\nNot run on W1: {', '.join(left_out)}." if left_out else ""
    return f"{measured}\n\n{machine}.\n\n{versions}.{others}"


def _bars(results: Results) -> str:
    every = list(bars(results))
    rows = (
        [
            bar.figure,
            bar.rule,
            bar.measured,
            bar.against,
            "–" if bar.ratio is None else f"{bar.ratio:.3g}",
            bar.mark if bar.held else f"**{bar.mark}**",
        ]
        for bar in every
    )
    marks = [bar.mark for bar in every]
    counts = ", ".join(f"{marks.count(mark)} {mark}" for mark in ("held", "missed", "not measured"))
    header = ["figure", "bar", "measured", "compared with", "ratio", ""]
    return f"### The bars: {counts}\n\n{_table(header, rows)}"


def _limits(results: Results) -> str:
    names = {
        "copy": "copy, one thread, streaming stores, prefaulted huge pages",
        "write_new": "O_DIRECT write of a new file, fsync",
        "write_over": "O_DIRECT write over an old file, fsync",
        "read_buffered": "buffered read, cold",
        "read_direct": "O_DIRECT read, cold",
        "fsync_small": "new file of 4 KiB, fsync",
    }
    nbytes = max(
        (record["limits"].get("bytes", 0) for record in results.records if "limits" in record), default=0
    )
    if not nbytes:
        return ""

    def rows() -> Iterator[list[str]]:
        for name, label in names.items():
            value = results.limit(name)
            rate = f"{nbytes / value / 1e9:.1f} GB/s" if value and name != "fsync_small" else "–"
            yield [label, seconds(value), rate]

    return f"### Limits of the machine, {size(nbytes)}\n\n{_table(['what', 'time', 'rate'], rows())}"


def _library_table(results: Results, workload: str) -> str:
    libraries = results.libraries(workload)
    if not libraries:
        return ""
    has = {key for record in results.records if record.get("workload") == workload for key in record}
    header = ["library", "rounds", "stall, first", "later"]
    header += [f"extra, {loop}" for loop in LOOPS] if "extra" in has else []
    header += ["durable", "CPU", "memory, own", "machine"]
    places = ["fresh", "into", "mmap"] if "restores" in has else []
    for heat in ("warm", "cold"):
        header += [f"{place}, {heat}" for place in places]

    def row(library: str) -> list[str]:
        def show(*path: str) -> str:
            return seconds(results.figure(library, workload, *path))

        cells = [REGISTRY[library].label, str(len(results.of(library, workload)))]
        cells += [show("first_stall"), show("stalls")]
        cells += [show("extra", loop, "extra") for loop in LOOPS] if "extra" in has else []
        cells += [show("durables"), show("cpus")]
        cells += [size(results.figure(library, workload, key)) for key in ("memory", "machine_memory")]
        for heat in ("warm", "cold"):
            # New memory counts once every page was touched, as lazily read results pay only then.
            untils = {"fresh": "touched", "into": "returned", "mmap": "returned"}
            cells += [show("restores", f"{place}.{heat}", untils[place]) for place in places]
        return cells

    state, tensors = (
        next((value for name in libraries if (value := results.figure(name, workload, key))), None)
        for key in ("state_bytes", "tensors")
    )
    count = f"{tensors:,.0f} tensors" if tensors else ""
    return f"### {workload}: {count}, {size(state)}\n\n{_table(header, map(row, libraries))}"


def _partial_table(results: Results) -> str:
    libraries = results.libraries("W5")
    if not libraries:
        return ""

    def row(library: str) -> list[str]:
        def show(*path: str) -> str:
            return seconds(results.figure(library, "W5", *path))

        new = size(results.figure(library, "W5", "partial", "new_bytes"))
        label = REGISTRY[library].label
        return [
            label,
            show("stalls"),
            show("durables"),
            show("partial", "stall"),
            show("partial", "durable"),
            new,
        ]

    header = ["library", "stall, all changed", "durable", "stall, 2 % changed", "durable", "new bytes"]
    state = size(results.figure(libraries[0], "W5", "state_bytes"))
    return f"### W5: 100 tensors, {state}, from the third save on\n\n{_table(header, map(row, libraries))}"


def _troubles(results: Results) -> str:
    found = results.troubles()
    if not found:
        return ""
    lines = "\n".join(f"- {'; '.join(places)}: {what}" for what, places in found.items())
    return f"### Not measured, failed, or wrong\n\n{lines}"
