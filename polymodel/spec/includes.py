"""Files that templates of other tools may include: YAML files around the imported file, and no others.

The functions have the names that Timeloop's and AccelForge's templates call. A file is searched in the folder
of the including file, then in the folders given to `add_to_path`. Only files below `base` with a YAML or
template extension are read, after links are resolved. No included content is executed: a file is rendered in
the same sandbox, with the variables of the including file, and parsed as plain data.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from jinja2 import pass_context
from jinja2.runtime import Context

from polymodel.errors import Diagnostic
from polymodel.spec.faults import Faults, Source, YamlNode
from polymodel.spec.files import text_of
from polymodel.spec.template import Budget, FileValue, Functions, TemplateStopped, render
from polymodel.spec.yaml_text import IncludedValues, parse_yaml

ENDINGS = (".yaml", ".yml", ".jinja", ".jinja2", ".j2")
ABOVE = 2  # folders above that of the file
MAX_READS = 200
MAX_DEPTH = 12  # files that include each other


def base_of(path: Path) -> Path:
    """The folder below which includes are read: two levels above the file, never the root of the file
    system.
    """
    result = path.resolve().parent
    for _ in range(ABOVE):
        if result.parent.parent != result.parent:
            result = result.parent
    return result


@dataclass
class Includes:
    """The files that one import may include, all below the folder `base`, and those included so far."""

    base: Path
    tags: tuple[str, ...]
    parts: IncludedValues = field(default_factory=IncludedValues)
    variables: set[str] = field(default_factory=set)
    read: list[str] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)
    depth: int = 0

    def functions(self, folder: Path) -> Functions:
        """The functions that a template in this folder may call."""
        asked = _Folder(self, folder.resolve())
        return {
            "add_to_path": asked.add_to_path,
            "cwd": asked.cwd,
            "path_exists": asked.path_exists,
            "find_path": asked.find_path,
            "include": asked.include,
            "include_all": asked.include_all,
            "include_text": asked.include_text,
            **_ARITHMETIC,
        }


def _plainly(function: Callable[..., object]) -> Callable[..., object]:
    """A builtin as a function without attributes, for numbers and what holds them."""

    def called(*values: object, **named: object) -> object:
        return function(*values, **named)

    return called


def _round(value: object, digits: object = 0) -> object:
    if not isinstance(value, (int, float)) or not isinstance(digits, int) or abs(digits) > 60:
        raise TemplateStopped("round takes a number and at most 60 digits", "give it a number")
    return round(value, digits) if digits else round(value)


_ARITHMETIC: Functions = {
    "round": _round,
    **{f.__name__: _plainly(f) for f in (math.ceil, math.floor, max, min, abs, len, int, float, dict)},
}


@dataclass
class _Folder:
    """The functions, for the templates of one folder."""

    includes: Includes
    folder: Path

    def cwd(self) -> str:
        """This folder: paths count from it."""
        return "."

    def add_to_path(self, path: object) -> str:
        """Add a folder to the search path."""
        found = self._inside(self.folder / str(path), str(path))
        if found not in self.includes.paths:
            self.includes.paths.append(found)
        return ""

    def path_exists(self, path: object) -> bool:
        """True if such a file could be included."""
        return self._resolved(str(path)) is not None

    def find_path(self, path: object) -> str:
        """The path of the file, relative to the folder that contains all files."""
        return os.path.relpath(self._needed(str(path)), self.includes.base)

    @pass_context
    def include_text(self, context: Context, path: object) -> str:
        """The text of a file, its own template rendered."""
        return self._rendered(context, self._needed(str(path)))[0]

    @pass_context
    def include(self, context: Context, path: object, key: object = "") -> FileValue:
        """A value of a file, by dotted key; all of it without one."""
        return FileValue(self.includes.parts.add(self._value(context, self._needed(str(path)), str(key))))

    @pass_context
    def include_all(self, context: Context, pattern: object, key: object = "") -> FileValue:
        """The lists that several files of one folder have under a key, as one."""
        where, _, name = str(pattern).rpartition("/")
        folder = self._inside(self.folder / where, str(pattern))
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        elements: list[YamlNode] = []
        for file in (n for n in names if fnmatchcase(n, name) and n.endswith(ENDINGS)):
            value = self._value(context, self._inside(folder / file, file), str(key))
            elements += value.elements if value.elements is not None else (value,)
        return FileValue(self.includes.parts.add(YamlNode(Source("", ()), 0, 0, elements=tuple(elements))))

    def _inside(self, path: Path, asked: str) -> Path:
        """The path with links resolved. Refused if it leaves the folder that contains all files."""
        base = self.includes.base
        try:
            result = path.resolve()
        except (OSError, ValueError, RuntimeError) as error:
            what = f"{asked[:200]!r} is not a path"
            raise TemplateStopped(what, "name a YAML file near this one") from error
        if os.path.isabs(asked) or not result.is_relative_to(base):
            remedy = f"includes are read from {base.name}/ and below; copy the file there"
            raise TemplateStopped(f"{asked[:200]} lies outside the folder that is read", remedy)
        return result

    def _resolved(self, asked: str) -> Path | None:
        for folder in (self.folder, *self.includes.paths):
            path = self._inside(folder / asked, asked)
            if path.is_file() and path.name.endswith(ENDINGS):
                return path
        return None

    def _needed(self, asked: str) -> Path:
        result = self._resolved(asked)
        if result is None:
            remedy = f"it has to end with {', '.join(ENDINGS)}, and to lie here or in a folder of add_to_path"
            raise TemplateStopped(f"there is no file {asked[:200]} to include", remedy)
        return result

    def _rendered(self, context: Context, path: Path) -> tuple[str, Source]:
        includes, faults = self.includes, Faults()
        name = os.path.relpath(path, includes.base)
        includes.read.append(name)
        if len(includes.read) > MAX_READS or includes.depth > MAX_DEPTH:
            what = "the template includes too many files, or one that includes itself"
            raise TemplateStopped(what, "include fewer")
        text = text_of(path, name, faults)
        if text is None:
            raise TemplateStopped("a file cannot be included", "", tuple(faults.found))
        includes.budget.spend(len(text))
        source = Source(name, tuple(text.split("\n")), folder=str(path.parent))
        known: Mapping[str, object] = {k: v for k, v in context.get_all().items() if not callable(v)}
        includes.depth += 1
        rendered, told = render(text, source, known, includes.functions(path.parent), includes.budget)
        includes.depth -= 1
        if rendered is None:
            raise TemplateStopped("a file cannot be included", "", told)
        includes.variables |= rendered.variables
        return rendered.text, rendered.source

    def _value(self, context: Context, path: Path, key: str) -> YamlNode:
        text, source = self._rendered(context, path)
        root, told = parse_yaml(text, source, self.includes.tags, self.includes.parts)
        if root is None or told:
            raise TemplateStopped("a file cannot be included", "", told)
        for part in key.split(".") if key else ():
            below = root.entry(part)
            if below is None:
                what = f"the included file has no {key[:200]}"
                raise TemplateStopped(
                    what, "", (Diagnostic(what, "check the key", "", root.place(), code="unknown-key"),)
                )
            root = below.value
        return root
