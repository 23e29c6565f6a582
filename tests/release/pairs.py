"""Every machine and workload that docs/libraries.md names together, and every evaluation of the library that
another page writes out, done by an installed polymodel:
`python -m tests.release.pairs .venv/bin/polymodel [--only TEXT]`.

Prints a table of what was asked, its exit code and CPU seconds. What needs more memory than the machine has
does not fit it (exit code 1); any other code but 0 is a fault.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "libraries.md"
# What a memory has no room for as it comes; the words after it make it fit.
TOO_LARGE = {
    ("deepseek_v3/layer_by_layer", "h100_like"): ("--var", "LAYERS=8"),
    ("gpt3_6.7B/untiled_fused", "tpu_v4i"): ("--var", "N_TOKENS=1024"),
    ("gpt3_175b", "h100_like"): ("--var", "LAYERS=8"),
    ("gpt3_175b", "tpu_v4i"): ("--var", "LAYERS=2"),
    ("llama3_70b", "tpu_v4i"): ("--var", "LAYERS=2"),
    ("mixtral_8x22b", "h100_like"): ("--var", "LAYERS=8"),
    ("mixtral_8x22b", "tpu_v4i"): ("--var", "LAYERS=1"),
    ("qwen3_30b_a3b", "tpu_v4i"): ("--var", "LAYERS=4"),
}


def rows(name: str) -> Iterator[list[str]]:
    """The cells of one of the page's tables, without their quotes."""
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition(f"<!-- {name}: ")[2].partition(f"<!-- end of {name} -->")[0]
    for line in table.splitlines()[3:]:
        yield [cell.strip().strip("`") for cell in line.strip("| ").split(" | ")]


def mappings() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(workload, machine, names of mappings) of the table of workloads."""
    for cells in rows("workloads"):
        for told in cells[-1].split("; "):
            machine, _, variants = told.partition(":")
            yield cells[0], machine.strip("` "), tuple(v.strip() for v in variants.split(","))


def pairs() -> Iterator[tuple[str, str, str]]:
    """(workload or model, machine, mapping) of all that the page has."""
    machines: dict[str, list[str]] = {}
    for workload, machine, variants in mappings():
        machines.setdefault(workload, []).append(machine)
        for variant in variants:
            yield workload, machine, variant
    for cells in rows("models"):
        model, workload = cells[0], cells[2]
        if model != workload:
            for machine in machines[workload]:
                yield model, machine, ""


def written() -> Iterator[list[str]]:
    """What stands behind `polymodel evaluate` on any page, where it names no files of the reader and is not
    shown to fail."""
    found: dict[tuple[str, ...], None] = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        told = re.findall(r"polymodel evaluate ([^`#|\n]*)", page.read_text(encoding="utf-8"))
        for line in (line for line in told if ";" not in line and "..." not in line):
            words = shlex.split(line)
            if not any(word.endswith(".yaml") for word in words):
                found[tuple(words)] = None
    yield from (["evaluate", *words] for words in found)


def asked(name: str, machine: str, variant: str) -> list[str]:
    """What stands behind `polymodel`: of several tables the shortest is enough."""
    return ["evaluate", machine, spoken(name, variant), "--table", "summary"]


def spoken(name: str, variant: str) -> str:
    return f"{name}/{variant}" if variant else name


def answered(command: Path, words: list[str]) -> tuple[int, float, str]:
    """Exit code, CPU seconds, and what was printed, far from any checkout."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as away:
        done = subprocess.run(
            [command, *words], cwd=away, env=kept, capture_output=True, text=True, check=False
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.returncode, spent, done.stdout + done.stderr


def fault(code: int, too_large: bool, told: str) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if code != too_large:
        return f"exit code {code}, not {int(too_large)}: {told.strip()[-400:]}"
    return "" if not too_large or "too small" in told else "nothing says what does not fit"


def ask(command: Path, name: str, machine: str, variant: str) -> Iterator[tuple[str, int, float, str]]:
    """(words, exit code, CPU seconds, fault) of a pair, and of as much of it as fits."""
    words, large = asked(name, machine, variant), TOO_LARGE.get((spoken(name, variant), machine))
    for all_of_it in (words, [*words, *large]) if large else (words,):
        code, spent, told = answered(command, all_of_it)
        yield " ".join(all_of_it), code, spent, fault(code, large is not None and all_of_it is words, told)


def each(command: Path, only: str = "") -> Iterator[tuple[str, int, float, str]]:
    """The same of all pairs, and of what pages write out."""
    for name, machine, variant in pairs():
        if only in f"{name} {machine} {variant}":
            yield from ask(command, name, machine, variant)
    for words in written():
        if only in " ".join(words):
            code, spent, told = answered(command, words)
            yield " ".join(words), code, spent, fault(code, False, told)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.release.pairs", description=__doc__)
    parser.add_argument("command", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args(arguments)
    wrong = 0
    sys.stdout.write("| polymodel | exit code | CPU seconds |\n|---|---|---|\n")
    for words, code, spent, broken in each(given.command.absolute(), given.only):
        sys.stdout.write(f"| {words} | {code} | {spent:.1f} |{' ' + broken if broken else ''}\n")
        sys.stdout.flush()
        wrong += bool(broken)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
