"""Runs the blocks of a page, in one namespace and one fresh folder, and compares what they print.

python blocks are executed; a text block right after one is what it printed; a yaml block that begins with
`# file: NAME` is written to the folder; in console blocks `$ polymodel ...` is run. Other yaml, json and toml
blocks must at least be of their language. Files of the repository are put into the folder by a comment,
`<!-- files: PATH PATH -->`, and a block is left out by one before it, `<!-- not run: REASON -->`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from polymodel.cli import main
from tests.documents.outputs import agree, difference
from tests.documents.page import ROOT, Block, blocks, files

# Asks for the output of a command to be filled in.
FILL_IN = "?"
CODE = "; echo $?"
FILE = re.compile(r"#\s*file:\s*(\S+)\s*\n")


@dataclass(frozen=True)
class Fault:
    """A block that is not as the page says; `line` counts from 1."""

    line: int
    message: str


@dataclass
class Run:
    """A page under way: what its blocks printed and what was wrong."""

    page: Path
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: dict[int, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    # Lines between fences, as they should read.
    new: dict[int, str] = field(default_factory=dict)

    def python(self, number: int, block: Block) -> None:
        # Empty lines above it make line numbers in tracebacks those of the page.
        code = compile("\n" * block.first + block.text, str(self.page), "exec")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, self.names)
        self.printed[number] = out.getvalue()

    def text(self, number: int, block: Block) -> None:
        if block.follows is None or block.follows not in self.printed:
            return
        self.compare(number, block, block.text, self.printed[block.follows])

    def compare(self, number: int, block: Block, expected: str, printed: str) -> None:
        if not agree(expected, printed):
            self.new[number] = printed
            self.faults.append(Fault(block.first, difference(expected, printed)))

    def yaml(self, number: int, block: Block) -> None:
        if named := FILE.match(block.text):
            path = (Path.cwd() / named[1]).resolve()
            if not path.is_relative_to(Path.cwd().resolve()):
                self.faults.append(Fault(block.first, f"{named[1]} is outside the page's folder"))
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text[named.end() :], encoding="utf-8")
            return
        self.parsed(block, lambda text: list(yaml.compose_all(text)))

    def json(self, number: int, block: Block) -> None:
        self.parsed(block, json.loads)

    def toml(self, number: int, block: Block) -> None:
        self.parsed(block, tomllib.loads)

    def parsed(self, block: Block, parse: Callable[[str], object]) -> None:
        try:
            parse(block.text)
        except (yaml.YAMLError, ValueError) as error:
            self.faults.append(Fault(block.first, f"not {block.language}: {error}"))

    def console(self, number: int, block: Block) -> None:
        rewritten = []
        for offset, command, expected in commands(block.text):
            line, spaced = block.first + offset + 1, command.replace("\\\n", " ").strip()
            if spaced.split()[0] != "polymodel":
                rewritten.append((command, expected))
                continue
            asks_code = spaced.endswith(CODE)
            printed, code = polymodel(spaced.removesuffix(CODE))
            if asks_code:
                printed += f"{code}\n"
            elif code != 0:
                self.faults.append(Fault(line, f"exit code {code}\n{printed}"))
            if expected.strip() and not agree(expected, printed):
                self.faults.append(Fault(line, difference(expected, printed)))
                expected = printed
            rewritten.append((command, expected))
        self.new[number] = "".join(
            f"$ {command}\n" + (f"{expected.rstrip()}\n" if expected.strip() else "")
            for command, expected in rewritten
        )


def commands(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, command and expected output of each `$ ` of a console block; a trailing backslash goes on."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        start = at
        if not lines[at].startswith("$ "):
            raise ValueError(f"a console block begins with '$ ', not {lines[at]!r}")
        command = [lines[at][2:]]
        while command[-1].endswith("\\"):
            at += 1
            command.append(lines[at])
        at += 1
        end = next((i for i in range(at, len(lines)) if lines[i].startswith("$ ")), len(lines))
        yield start, "\n".join(command), "".join(f"{line}\n" for line in lines[at:end])
        at = end


def polymodel(command: str) -> tuple[str, int]:
    """What a command prints, stdout before stderr, and its exit code; `> FILE` at its end is understood."""
    words = shlex.split(command, comments=True)[1:]
    target = None
    if len(words) > 1 and words[-2] == ">":
        *words, _, target = words
    for word in words:
        if word in ("|", "<", ">", ">>", "&&", "&"):
            raise ValueError(f"pages run polymodel, not a shell: {command!r}")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    if target is not None:
        Path(target).write_text(out.getvalue(), encoding="utf-8")
        return err.getvalue(), code
    return out.getvalue() + err.getvalue(), code


@contextlib.contextmanager
def fresh_folder() -> Iterator[None]:
    """Work in a folder that is gone afterwards, at one width, with pictures that open no window."""
    before = {name: os.environ.get(name) for name in ("COLUMNS", "MPLBACKEND")}
    os.environ.update(COLUMNS="100", MPLBACKEND="Agg")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            if pyplot := sys.modules.get("matplotlib.pyplot"):
                pyplot.close("all")


def run(page: Path) -> tuple[list[Fault], str]:
    """Faults of a page, and its text with the outputs as they are. A python block that raises, raises."""
    text = page.read_text(encoding="utf-8")
    found, under_way = blocks(text), Run(page)
    kinds = {k: getattr(under_way, k) for k in ("python", "text", "yaml", "json", "toml", "console")}
    with fresh_folder():
        for file in files(text):
            # A page names it by itself, or, as a reader in a checkout does, with its folders.
            inside = file.relative_to(ROOT)
            inside.parent.mkdir(parents=True, exist_ok=True)
            for place in {Path(file.name), inside}:
                shutil.copy(file, place)
        for number, block in enumerate(found):
            if block.skipped is None and block.language in kinds:
                kinds[block.language](number, block)
    lines = text.splitlines()
    for number in sorted(under_way.new, reverse=True):
        block = found[number]
        new = under_way.new[number].rstrip().splitlines()
        lines[block.first : block.last] = [f"{block.indent}{line}".rstrip() for line in new]
    return under_way.faults, "\n".join(lines) + "\n"
