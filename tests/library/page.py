"""The tables of docs/libraries.md, from the files of the library: `python -m tests.library.page [--check]`.

Each file begins with a comment; its first sentence says what the file is. Without --check the tables are
written anew; with it nothing is written, and exit code 1 says that the page is outdated.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import polymodel as pm
from polymodel.quantities import engineering
from polymodel.spec.files import architectures, models, variants, workloads
from tests.library.figures import macs, parameters, peak
from tests.library.published import PEAKS, PUBLISHED

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "libraries.md"
# A stop or colon that ends a sentence, not an abbreviation.
END = re.compile(r"(?<!al)(?<!No)[.:](?=\s|$)")


def about(path: Path) -> str:
    """The first sentence of the comment that a file begins with."""
    lines = path.read_text(encoding="utf-8").split("\n")[1:]
    comment: list[str] = []
    for line in lines:
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    text = " ".join(comment)
    for end in END.finditer(text):
        sentence = text[: end.start()]
        if sentence.count("(") == sentence.count(")"):
            return sentence
    raise AssertionError(f"{path} begins with no sentence")


def variables(name: str) -> list[str]:
    """The template variables of a file, with the words that one may be."""
    spec = pm.load(name)
    among = {v.name: v.among for v in spec.variable_declarations if isinstance(v.default, str)}
    return [
        f"`{v}`" + (f" ({', '.join(map(str, among[v]))})" if among.get(v) else "")
        for v in spec.template_variables
    ]


def machines() -> Iterator[tuple[str, ...]]:
    yield "machine", "is", "template variables", "multiply-accumulates a second", "published"
    for name in architectures():
        known, reaches, where = variables(name), "", ""
        if name in PEAKS:
            given, _, _, where = PEAKS[name]
            reaches = engineering(peak(name)) + "".join(f" with `{k}={v}`" for k, v in given.items())
        yield f"`{name}`", about(ROOT / "arch" / f"{name}.yaml"), ", ".join(known), reaches, where


def templates() -> Iterator[tuple[str, ...]]:
    yield "workload", "is", "template variables", "mappings"
    for name in workloads():
        if name in models() and models()[name].workload != name:
            continue
        known = variables(name)
        folders = sorted(p.name for p in (ROOT / "workloads" / name).iterdir())
        mapped = [f"`{arch}`: {', '.join(variants(name, arch))}" for arch in folders]
        yield (
            f"`{name}`", about(ROOT / "workloads" / f"{name}.yaml"), ", ".join(known), "; ".join(mapped)
        )  # fmt: skip


def published() -> Iterator[tuple[str, ...]]:
    work = "multiply-accumulates"
    yield "model", "is", "workload", "parameters", "published", work, "published", "sizes from"
    for name, model in sorted(models().items()):
        figures = PUBLISHED[name]
        cascade = pm.load(name, **figures.variables).workload
        whole = sum(parameters(pm.load(name).workload).values()) + sum(figures.beside.values())
        run = ", ".join(f"`{k}={v}`" for k, v in figures.variables.items())
        told = [f"{figures.parameters} ({figures.parameters_in})", f"{figures.macs} ({figures.macs_in})"]
        work = f"{macs(cascade):,}" + (f" with {run}" if run else "")
        shown = f"`{name}`", model.about, f"`{model.workload}`"
        yield (*shown, f"{whole:,}", told[0], work, told[1], model.source)


def table(rows: Iterator[tuple[str, ...]]) -> str:
    """Rows as Markdown, the first as the head."""
    head, *rest = rows
    lines = [head, ("---",) * len(head), *rest]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("|  |", "| |")


TABLES = {"machines": machines, "workloads": templates, "models": published}


def page(text: str) -> str:
    """The page with its tables made anew."""
    for name, rows in TABLES.items():
        begin, end = f"<!-- {name}: python -m tests.library.page -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"the page has no table of {name}"
        text = f"{before}{begin}{table(rows())}{end}{after}"
    return text


def main(arguments: list[str]) -> int:
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" in arguments:
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
