"""The lines of JSON of a run, and the figures in them."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from .libraries import REGISTRY

Record = dict[str, Any]


class Results:
    """Everything that was measured in one run. Figures are medians over the rounds."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """From a file with a record a line."""
        return cls(json.loads(line) for line in path.read_text().splitlines())

    def head(self) -> Record:
        """The machine, the versions, and how it was run."""
        return next(record for record in self.records if "machine" in record)

    def of(self, library: str, workload: str) -> list[Record]:
        """The records of a library, one a round."""
        return [
            record
            for record in self.records
            if record.get("library") == library and record.get("workload") == workload
        ]

    def libraries(self, workload: str) -> list[str]:
        """Those that were asked to run it, in order."""
        asked = {record["library"] for record in self.records if record.get("workload") == workload}
        return [name for name in REGISTRY if name in asked]

    def values(self, library: str, workload: str, *path: str) -> list[float]:
        """A figure in each round that has it; of a list, its median."""
        found = []
        for record in self.of(library, workload):
            value: Any = record
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, list) and value:
                value = median(value)
            if isinstance(value, (int, float)):
                found.append(float(value))
        return found

    def figure(self, library: str, workload: str, *path: str) -> float | None:
        """The median over the rounds."""
        values = self.values(library, workload, *path)
        return median(values) if values else None

    def limit(self, *names: str) -> float | None:
        """The lowest of these limits, each the median of all its repetitions; seconds for the bytes of W1."""
        medians = []
        for name in names:
            every = [
                value
                for record in self.records
                if "limits" in record
                for value in record["limits"].get("seconds", {}).get(name, [])
            ]
            if every:
                medians.append(median(every))
        return min(medians, default=None)

    def best(self, libraries: Iterable[str], workload: str, *path: str) -> tuple[float, str] | None:
        """The lowest value and the library that has it."""
        each = ((self.figure(name, workload, *path), name) for name in libraries)
        return min(((value, name) for value, name in each if value is not None), default=None)

    def peers(self, **attributes: object) -> Iterator[str]:
        """The libraries that are not pitstop and save something, by what they are."""
        for name, library in REGISTRY.items():
            wanted = all(getattr(library, key) == value for key, value in attributes.items())
            if wanted and not name.startswith("pitstop") and name != "control":
                yield name

    def rounds(self, library: str, workload: str, *path: str) -> int:
        """In how many rounds the figure was measured."""
        return len(self.values(library, workload, *path))

    def troubles(self) -> dict[str, list[str]]:
        """What was not measured, failed, or came back wrong, with the libraries and workloads concerned."""
        found: dict[str, list[str]] = {}
        for record in self.records:
            name = record.get("library", "limits")
            place = f"{REGISTRY[name].label if name in REGISTRY else name}, {record.get('workload', '')}"
            for key in ("unavailable", "error"):
                if key in record:
                    found.setdefault(f"{key}: {record[key]}", []).append(place)
            for way, leaves in record.get("wrong", {}).items():
                if leaves:
                    found.setdefault(f"wrong in {way}: {', '.join(leaves)}", []).append(place)
        return {what: list(dict.fromkeys(places)) for what, places in found.items()}
