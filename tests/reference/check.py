"""Compare polymodel with reference cases: `python -m tests.reference.check [--cases DIR] [--engine NAME]`.

Prints one line per case; exits 1 if any number differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from polymodel.errors import PolymodelError
from tests.reference import accelforge, skislope, timeloop
from tests.reference.common import Outcome, engine

HERE = Path(__file__).parent / "cases"


def find_cases(root: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """AccelForge files, Timeloop folders, and folders of formats that are not covered."""
    oracle, folders, other = [], [], set()
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        if path.suffix == ".yaml" and path.name == "spec.yaml":
            if "subtree" in path.read_text():
                folders.append(path.parent)
            else:
                other.add(path.parent.parent)
        elif path.suffix == ".yaml" and path.read_text().startswith(f"format: {accelforge.FORMAT}"):
            oracle.append(path)
        elif (
            path.suffix in (".yaml", ".json")
            and path.name != "result.json"
            and not skislope.is_case(path.name)
        ):
            other.add(path.parent if path.parent != root else path)
    return oracle, folders, sorted(other)


def find_slopes(root: Path) -> list[Path]:
    """Ski slopes of single matmuls."""
    return sorted(p for p in root.rglob("*.json") if skislope.is_case(p.name))


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def guarded(name: str, compare) -> Outcome:
    """The outcome of a comparison; an engine's refusal is a mismatch with its reason."""
    try:
        return compare()
    except (PolymodelError, ValueError, KeyError) as fault:
        return Outcome(name, mismatches=[f"{type(fault).__name__}: {fault}"])


def run(root: Path, engine_name: str) -> list[Outcome]:
    """All outcomes of a folder of cases."""
    chosen = engine(engine_name)
    oracle, folders, _ = find_cases(root)
    found = []
    for path in oracle:
        found.append(guarded(path.stem, lambda p=path: accelforge.check(load(p), p, chosen)))
    for folder in folders:
        found.append(guarded(folder.name, lambda f=folder: timeloop.check(load(f / "spec.yaml"), f, chosen)))
    for path in find_slopes(root):
        found.append(guarded(path.stem, lambda p=path: skislope.check(load(p), p.stem)))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=HERE)
    parser.add_argument("--engine", choices=("exact", "enumerate"), default="exact")
    parser.add_argument("--notes", action="store_true", help="also print what is no mismatch")
    options = parser.parse_args(arguments)
    if not options.cases.is_dir():
        print(f"{options.cases}: no such folder", file=sys.stderr)
        return 2
    outcomes = run(options.cases, options.engine)
    for outcome in outcomes:
        verdict = "ok" if not outcome.mismatches else f"{len(outcome.mismatches)} MISMATCHES"
        print(f"{outcome.name}: {outcome.checked} numbers, {verdict}")
        for line in outcome.mismatches:
            print(f"    {line}")
        for line in outcome.notes if options.notes else ():
            print(f"    note: {line}")
    for folder in find_cases(options.cases)[2]:
        print(f"{folder.relative_to(options.cases)}: not yet covered")
    total, wrong = sum(o.checked for o in outcomes), sum(bool(o.mismatches) for o in outcomes)
    print(
        f"{len(outcomes)} cases, {total} numbers compared with engine {options.engine}, {wrong} cases differ"
    )
    return 1 if wrong or not outcomes else 0


if __name__ == "__main__":
    raise SystemExit(main())
