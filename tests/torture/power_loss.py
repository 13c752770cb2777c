#!/usr/bin/env python3
"""Cuts the power of real file systems while they hold a run that is being saved, and compares what is left.

    python tests/torture/power_loss.py --cuts 30 --file-systems ext4,xfs,btrfs

It needs to be root, loop devices and /dev/fuse; where it is not permitted it says so. A disk that remembers
every write and every flush (tests/python/volatile.py) is wound back to the moment of the cut; of what was
written after the last flush nothing, all or some survives. Then the file system is mounted, which replays its
journal, every checkpoint is compared with what it must be, and the file system is checked.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import child
import power
import volatile

child.TIMEOUT = 1800  # seconds: other work may be more urgent than a campaign


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cuts", type=int, default=30, help="random moments for each run, beside the commits"
    )
    parser.add_argument("--saves", type=int, default=12, help="for each run")
    parser.add_argument("--megabytes", type=int, default=12, help="size of the state")
    parser.add_argument("--file-systems", default="ext4,xfs,btrfs")
    parser.add_argument("--seed", default=str(time.time_ns()))
    parser.add_argument("--directory", help="where to write; default: where temporary files go")
    options = parser.parse_args()
    print(f"power loss: seed {options.seed}", flush=True)
    total = power.Count()
    for kind in options.file_systems.split(","):
        for way in power.WAYS:
            for direct_io in (True, False):
                name = f"{kind}, {way}, O_DIRECT {'on' if direct_io else 'off'}"
                how = {"nbytes": options.megabytes * 10**6, "saves": options.saves, "direct_io": direct_io}
                try:
                    with tempfile.TemporaryDirectory(
                        dir=options.directory, prefix="pitstop-power-"
                    ) as folder:
                        count = power.campaign(
                            folder, kind, way, options.cuts, f"{options.seed} {name}", **how
                        )
                except volatile.NotPermittedError as error:
                    print(f"skipped: {name}: {error}", flush=True)
                    continue
                print(f"{name}: {count}", flush=True)
                for problem in count.losses + count.wrong:
                    print(f"    {problem}", flush=True)
                total += count
    print(f"power loss in all: {total}")
    return 1 if total.losses or total.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
