"""One verdict from every door: `python -m tests.analysis.campaign --total 20000 --seed 1 --jobs 2`.

Spec n under seed s is made from `Random(f"{s}/{n}")`; `--number N` asks about that one alone, and shows it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from random import Random
from time import perf_counter, process_time

from tests.analysis.verdicts import BREAKS, Found, asked, explored
from tests.specs import drawn

SHARE = 50  # specs that a process takes at a time
EVERY = 100  # one spec in so many is explored as well


def some(task: tuple[int, int, int]) -> Found:
    """Specs first..last-1 under a seed."""
    seed, first, last = task
    found, start = Found(), process_time()
    for number in range(first, last):
        try:
            found.add(asked(number, seed))
            if number % EVERY == 0:
                found.add(explored(number, seed))
        except BREAKS as fault:
            found.differences.append((number, f"{type(fault).__name__}: {fault}"))
    found.counts["milliseconds"] += round(1000 * (process_time() - start))
    return found


def campaign(total: int, seed: int, jobs: int) -> Iterator[Found]:
    """The specs of a seed, share by share."""
    tasks = [(seed, first, min(first + SHARE, total)) for first in range(0, total, SHARE)]
    if jobs == 1:
        yield from map(some, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(some, tasks)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--number", type=int)
    options = parser.parse_args(arguments)
    write = sys.stdout.write
    if options.number is not None:
        one = drawn(Random(f"{options.seed}/{options.number}"))
        write(json.dumps(one.document, indent=1) + f"\n{one.values} {one.fault}\n")
        found = asked(options.number, options.seed)
        found.add(explored(options.number, options.seed))
        write("\n".join(line for _, line in found.differences) + "\n")
        return bool(found.differences)
    every, start = Found(), perf_counter()
    for found in campaign(options.total, options.seed, options.jobs):
        every.add(found)
        for number, line in found.differences:
            write(f"{number}: {line}\n")
            sys.stdout.flush()
    n = max(1, every.counts["specs"])
    for name, count in sorted(every.counts.items()):
        write(f"{name}: {count:,} ({100 * count / n:.1f} %)\n")
    write(f"{every.counts['milliseconds'] / n:.1f} ms of a processor each, {perf_counter() - start:.0f} s\n")
    write(f"differences: {len(every.differences)} in {len({k for k, _ in every.differences})} specs\n")
    return bool(every.differences)


if __name__ == "__main__":
    sys.exit(main())
