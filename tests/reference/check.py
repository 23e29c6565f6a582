"""Compare polymodel with reference cases: `python -m tests.reference.check [--cases DIR] [--data DIR]
[--peers DIR]`.

Prints one line per case; exits 1 if any number differs or any case cannot be read. The repository has a few
cases of each kind; `--cases` names a folder of all. Cases about matrices of public collections, and the
claims of the documents about them, need the folder of these: `--data`. `--peers`: files that other tools
publish.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from polymodel.analysis.result import Engine
from polymodel.errors import PolymodelError
from tests.reference import (
    accelforge,
    density_claims,
    looptree,
    mapper,
    mapper_timeloop,
    optima,
    peers,
    published,
    skislope,
    teaal,
    tiler_swift_claims,
    tiling,
    timeloop,
)
from tests.reference.common import Outcome, engine
from tests.reference.tiling_matrices import reading

HERE = Path(__file__).parent / "cases"


# Reference data of parts that are compared elsewhere or are still to come: listed, not counted as faults.
LATER = {"skislope"}
# Files in a folder of these names hold data of sparse tensors, or of tilings, known or not.
DATA = {"teaal": teaal, "tiling": tiling}
# Files in a folder of this name are what cases are about, not cases.
OPERANDS = "matrices"


def files(root: Path, *suffixes: str) -> list[Path]:
    """All files of a folder that end so, in order, except the operands of cases."""
    found = (p for p in root.rglob("*") if p.suffix in suffixes and p.is_file())
    return sorted(p for p in found if OPERANDS not in p.relative_to(root).parts[:-1])


def find_cases(root: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """AccelForge files, Timeloop folders, and what else holds data: files, or the folders around them."""
    oracle, folders, other = [], [], set()
    for path in files(root, ".yaml", ".json"):
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.name == "spec.yaml":
            folders.append(path.parent)
        elif path.suffix == ".yaml" and text.startswith(f"format: {accelforge.FORMAT}"):
            oracle.append(path)
        elif path.name != "result.json" and not (
            skislope.is_case(path.name) or is_mapper(text) or is_anchors(path, text) or kinds_of(path, root)
        ):
            inside = path.relative_to(root).parts[:-1]
            later = [i for i, part in enumerate(inside) if part in LATER]
            other.add(root.joinpath(*inside[: later[0] + 1]) if later else path.parent if inside else path)
    return oracle, folders, sorted(other)


def is_mapper(text: str) -> bool:
    """True for cases of a search, told by their format; a file that only says so is one, malformed."""
    return re.search(r"^[{\s]*[\"']?format[\"']?:\s*[\"']?mapper-oracle\b", text, re.MULTILINE) is not None


def is_anchors(path: Path, text: str) -> bool:
    """True for figures that papers and documents print."""
    return path.suffix == ".json" and published.is_anchors(text)


def kinds_of(path: Path, root: Path) -> list[str]:
    """Which data a file holds, of sparse tensors or of tilings: told by content or by the folder."""
    if path.suffix != ".json" or path.name == "result.json":
        return []
    folders = path.relative_to(root).parts[:-1]
    return [kind for kind, about in DATA.items() if kind in folders or about.topics_of(path)]


def check_data(path: Path, kinds: list[str]) -> list[Outcome]:
    """The cases of one file; a file that cannot be read at all is one fault.

    A file is of the kind that knows its content, and only if none does of the kind of its folder.
    """
    found: list[Outcome] = []
    known = [kind for kind in kinds if DATA[kind].topics_of(path)] or kinds[:1]

    def compare() -> Outcome:
        found.extend(outcome for kind in known for outcome in DATA[kind].check(path))
        return Outcome(path.stem)

    whole = guarded(path.stem, compare)
    return [whole] if whole.fault else found


def find_searches(root: Path) -> list[Path]:
    """What other tools' searches found."""
    every = files(root, ".yaml", ".json")
    return [p for p in every if is_mapper(p.read_text(encoding="utf-8", errors="replace"))]


def check_search(path: Path, chosen: Engine) -> list[Outcome]:
    """The cases of one file: one, or those under `cases`, each with what the file says for all."""
    try:
        given = load(path)
    except (ValueError, yaml.YAMLError):
        return [guarded(path.stem, lambda: mapper.check(load(path), path.stem, chosen))]
    if given.get("format") == mapper_timeloop.FORMAT:
        return [guarded(path.stem, lambda: mapper_timeloop.check(given, path.stem, chosen))]
    if given.get("format") != mapper.FORMAT:
        return [Outcome(path.stem, fault=f"no case of a known format: {given.get('format')}")]
    several = given.get("cases")
    if not isinstance(several, list):
        return [guarded(path.stem, lambda: mapper.check(given, path.stem, chosen))]
    found = []
    for number, one in enumerate(several):
        name = f"{path.stem}_{number + 1}"
        found.append(guarded(name, lambda o=one, n=name: mapper.check({**given, **o}, n, chosen)))
    return found


def find_slopes(root: Path) -> list[Path]:
    """Ski slopes of single matmuls and of chains."""
    return [p for p in files(root, ".json") if skislope.is_case(p.name)]


def load(path: Path) -> dict[str, Any]:
    """A case file. ValueError if it is not a mapping."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("a mapping is expected")
    return found


def guarded(name: str, compare: Callable[[], Outcome]) -> Outcome:
    """The outcome of a comparison; a refusal or a case that is not a case is a fault with its reason."""
    try:
        return compare()
    except PolymodelError as fault:
        return Outcome(name, fault=f"not evaluated: {fault}")
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark
        where = f" at line {mark.line + 1}" if mark else ""
        return Outcome(name, fault=f"malformed case: {fault.problem}{where}")
    except KeyError as fault:
        return Outcome(name, fault=f"malformed case: {fault.args[0]} is missing or not known")
    except FileNotFoundError as fault:
        return Outcome(name, fault=f"malformed case: {Path(fault.filename).name} is missing")
    except ValueError as fault:
        return Outcome(name, fault=f"malformed case: {fault}")
    except (AttributeError, IndexError, OSError, TypeError, yaml.YAMLError) as fault:
        return Outcome(name, fault=f"malformed case: {type(fault).__name__}: {fault}")


def check_folder(folder: Path, chosen: Engine) -> Outcome:
    """A folder of Timeloop: a fused mapping of the LoopTree model (always with relations), or one nest."""
    spec = load(folder / "spec.yaml")
    if isinstance(spec.get("mapping"), dict):
        return looptree.check(spec, folder)
    return timeloop.check(spec, folder, chosen)


def run(root: Path, engine_name: str) -> list[Outcome]:
    """All outcomes of a folder of cases."""
    chosen = engine(engine_name)
    oracle, folders, other = find_cases(root)
    found = []
    for path in oracle:
        found.append(guarded(path.stem, lambda p=path: accelforge.check(load(p), p, chosen)))
    for folder in folders:
        found.append(guarded(folder.name, lambda f=folder: check_folder(f, chosen)))
    for path in find_slopes(root):
        found.append(guarded(path.stem, lambda p=path: skislope.check(load(p), p.stem)))
    for path in find_searches(root):
        found += check_search(path, chosen)
    for path in files(root, ".json"):
        if is_anchors(path, path.read_text(encoding="utf-8", errors="replace")):
            found += published.check(path)
        elif kinds := kinds_of(path, root):
            found += check_data(path, kinds)
    for path in other:
        name = str(path.relative_to(root))
        if not LATER & set(path.relative_to(root).parts):
            found.append(Outcome(name, fault="no case of a known format"))
    return found


def claims(cases: Path, data: Path) -> list[Outcome]:
    """What the documents say of matrices and cases that are not part of the repository."""
    from tests.documents import validation

    found: list[Outcome] = []
    made = {"Tiler-Swift's matrices": tiler_swift_claims, "density of matrices": density_claims}
    whole = [guarded(name, lambda m=about: _all(m.check(data), found)) for name, about in made.items()]
    return [*found, *(w for w in whole if w.fault), *validation.compared(cases, data)]


def _all(outcomes: Iterable[Outcome], found: list[Outcome]) -> Outcome:
    found += outcomes
    return Outcome("")


def shown(outcome: Outcome, notes: bool) -> str:
    """An outcome as text: a fault is one line."""
    if outcome.fault:
        return f"{outcome.name}: {' '.join(outcome.fault.split())}"
    if outcome.uncomputed and not outcome.checked:
        return f"{outcome.name}: not computed: {'; '.join(outcome.uncomputed)}"
    verdict = "ok" if not outcome.mismatches else f"{len(outcome.mismatches)} MISMATCHES"
    searched = "" if outcome.seconds is None else f", {outcome.seconds:.2f} s of search"
    lines = [f"{outcome.name}: {outcome.checked} numbers{searched}, {verdict}"]
    lines += [f"    {line}" for line in outcome.mismatches]
    lines += [f"    not computed: {line}" for line in outcome.uncomputed]
    lines += [f"    listed difference: {line}" for line in outcome.listed]
    lines += [f"    note: {line}" for line in outcome.notes if notes]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=HERE)
    parser.add_argument("--data", type=Path, help="folder of the matrices that cases and documents name")
    parser.add_argument("--peers", type=Path, help="folder of specs and results of other tools")
    parser.add_argument("--engine", choices=("exact", "enumerate"), default="exact")
    parser.add_argument("--notes", action="store_true", help="also print what is no mismatch")
    options = parser.parse_args(arguments)
    named = [folder for folder in (options.cases, options.data, options.peers) if folder]
    if missing := [folder for folder in named if not folder.is_dir()]:
        print("\n".join(f"{folder}: no such folder" for folder in missing), file=sys.stderr)
        return 1
    with reading(options.data):
        outcomes = run(options.cases, options.engine)
        outcomes += claims(options.cases, options.data) if options.data else []
    outcomes += [*peers.check(options.peers), *optima.check(options.peers)] if options.peers else []
    for outcome in outcomes:
        print(shown(outcome, options.notes))
    for path in find_cases(options.cases)[2]:
        if LATER & set(path.relative_to(options.cases).parts):
            print(f"{path.relative_to(options.cases)}: not yet covered")
    if not outcomes:
        print(f"{options.cases}: no case in it", file=sys.stderr)
        return 1
    outcomes = [o for o in outcomes if o.checked or o.fault or not o.uncomputed]
    total = sum(o.checked for o in outcomes)
    wrong = sum(bool(o.mismatches or o.fault) for o in outcomes)
    print(
        f"{len(outcomes)} cases, {total} numbers compared with engine {options.engine}, "
        f"{wrong} cases differ or are unreadable"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
