"""What closed forms refuse of legal specs of all kinds, by reason: `python -m tests.analysis.refusals`.

Every spec is counted by the symbolic engine at its numbers; with `--symbols` also with a symbol in the place
of each tile size. With `--check` what is counted is compared with enumeration and with the exact engine, and
a grid of tile sizes is swept. Spec n under seed s is `legal(n, s)`; `--number N` asks about that one alone,
and shows it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from time import process_time

import polymodel as pm
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.errors import NotSeparable, Refused
from tests.analysis.verdicts import BREAKS, Found, counted
from tests.mixed_specs import Legal, legal


def reason(problem: pm.Problem, refusal: Refused) -> str:
    """The message without the names of the spec."""
    tensors = {t for e in problem.cascade for t in e.tensors}
    names = {e.name for e in problem.cascade} | tensors | {c.name for c in problem.hierarchy.components}
    names |= {v for e in problem.cascade for v in e.rank_variables}
    pattern = r"\b(" + "|".join(sorted(map(re.escape, names), key=len, reverse=True)) + r")\b"
    return re.sub(r"-?\d+", "N", re.sub(pattern, "_", refusal.message))


def refused_at_numbers(one: Legal) -> str:
    """Why the symbolic engine refuses a spec, or nothing."""
    try:
        SYMBOLIC.analyse(one.problem)
    except NotSeparable as refusal:
        return reason(one.problem, refusal)
    except BREAKS as fault:
        return f"BREAKS: {type(fault).__name__}: {fault}"
    return ""


def refused_with_symbols(one: Legal) -> str:
    """Why there are no closed forms where each tile size is a symbol, or nothing."""
    try:
        pm.closed_forms(one.bound, tiles=True)
    except NotSeparable as refusal:
        return reason(one.problem, refusal)
    return ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--symbols", action="store_true")
    parser.add_argument("--number", type=int)
    options = parser.parse_args(arguments)
    write = sys.stdout.write
    kinds: Counter[str] = Counter()
    refused: dict[str, Counter[str]] = {"numbers": Counter(), "symbols": Counter()}
    of_kind: Counter[str] = Counter()
    examples: dict[str, list[int]] = {}
    found, start = Found(), process_time()
    numbers = range(options.first, options.first + options.total)
    if options.number is not None:
        numbers = range(options.number, options.number + 1)
    for number in numbers:
        one = legal(number, options.seed)
        if one is None:
            continue
        kinds[one.kind] += 1
        if options.number is not None:
            write(json.dumps(one.drawn.document, indent=1) + f"\n{one.drawn.values}\n")
        why = refused_at_numbers(one)
        if why:
            refused["numbers"][why] += 1
            of_kind[one.kind] += 1
            examples.setdefault(why, []).append(number)
        if options.symbols:
            why = refused_with_symbols(one)
            refused["symbols"][why] += bool(why)
            examples.setdefault(f"symbols: {why}", []).append(number)
        if options.check:
            try:
                lines = counted(one.spec, one.bound, one.drawn, found.counts)
            except BREAKS as fault:
                lines = [f"{type(fault).__name__}: {fault}"]
            for line in lines:
                found.differences.append((number, line))
                write(f"{number} ({one.kind}): {line}\n")
                sys.stdout.flush()
    total = max(1, kinds.total())
    for kind, n in kinds.items():
        write(f"{kind}: {n}, refused {of_kind[kind]}\n")
    for where, table in refused.items():
        if where == "numbers" or options.symbols:
            write(f"refused at {where}: {table.total()} of {total} ({100 * table.total() / total:.1f} %)\n")
            for why, n in table.most_common():
                mine = examples[why if where == "numbers" else f"symbols: {why}"][:8]
                write(f"  {n}  {why}  {mine}\n") if n else None
    for name, count in sorted(found.counts.items()):
        write(f"{name}: {count:,}\n")
    write(f"differences: {len(found.differences)}; {process_time() - start:.0f} s of a processor\n")
    return bool(found.differences)


if __name__ == "__main__":
    sys.exit(main())
