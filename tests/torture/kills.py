#!/usr/bin/env python3
"""Kills training runs with SIGKILL during their saves, 300 times, and compares what is left to the last bit.

python tests/torture/kills.py --kills 300 --megabytes 200
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import killing


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=300, help="so many of them during a save")
    parser.add_argument("--megabytes", type=int, default=200, help="size of the state")
    parser.add_argument(
        "--seed", default=str(time.time_ns()), help="to repeat the same moments, as far as can be"
    )
    parser.add_argument("--directory", help="where to write; default: where temporary files go")
    options = parser.parse_args()
    print(f"kills: seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="pitstop-kills-") as directory:
        nbytes = options.megabytes * 10**6
        run = Path(directory) / "run"
        count = killing.campaign(
            run, options.kills, nbytes, options.seed, report=lambda line: print(line, flush=True)
        )
    print(f"kills of runs with {options.megabytes} MB of state: {count}")
    return 1 if count.losses or count.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
