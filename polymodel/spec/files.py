"""Files: read up to a size, variables filled in, written whole or not at all; the packaged library."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TypeAlias

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import born, gone
from polymodel.spec.faults import Faults, Source

# The rule that no output file may be an input file is enforced here.
#
# A command declares its output files before it reads anything, so that a file that is both is
# refused before work begins; `whole`, through which all files are written, checks again.

File: TypeAlias = "str | os.PathLike[str]"
Mark: TypeAlias = "tuple[int, int]"


@dataclass
class _Watch:
    """Sets of files identified by device and inode, so that links and other spellings of a path are the same
    file."""

    read: dict[Mark, str] = field(default_factory=dict)
    written: dict[Mark, str] = field(default_factory=dict)


_WATCH: ContextVar[_Watch | None] = ContextVar("inputs", default=None)


@contextmanager
def watching() -> Iterator[None]:
    """Inside the block, files that are read are recorded and cannot be overwritten."""
    token = _WATCH.set(_Watch())
    try:
        yield
    finally:
        _WATCH.reset(token)


@contextmanager
def keeping(files: Iterable[File]) -> Iterator[None]:
    """Inside the block, these files cannot be overwritten, nor those that are protected already."""
    before = _WATCH.get() or _Watch()
    mine = {mark: str(file) for file in files if (mark := _mark(file)) is not None}
    token = _WATCH.set(_Watch({**before.read, **mine}, before.written))
    try:
        yield
    finally:
        _WATCH.reset(token)


def reading(file: File) -> None:
    """Record a file that is read. Raises SpecError if it is declared as an output."""
    watch, mark = _WATCH.get(), _mark(file)
    if watch is None or mark is None:
        return
    watch.read.setdefault(mark, str(file))
    if mark in watch.written:
        raise _both(watch.written[mark], str(file))


def claim(*files: File) -> None:
    """Declare output files. Raises SpecError for one that was already read."""
    watch = _WATCH.get()
    if watch is None:
        return
    for file in files:
        mark = _mark(file)
        if mark is None:
            continue
        watch.written.setdefault(mark, str(file))
        if mark in watch.read:
            raise _both(str(file), watch.read[mark])


def spare(file: File) -> None:
    """Raise SpecError if a file that is about to be written is an input."""
    watch = _WATCH.get()
    mark = _mark(file) if watch is not None and watch.read else None
    if watch is not None and mark is not None and mark in watch.read:
        raise _both(str(file), watch.read[mark])


def _both(output: str, source: str) -> SpecError:
    what = "it is an input" if output == source else f"it is the input {source}"
    message = f"cannot write {output}: {what}"
    return SpecError([Diagnostic(message, "choose another place to write to", code="unwritable-file")])


def _mark(file: File) -> Mark | None:
    """The identity of a file; None if it does not exist, or cannot lose data (a device or pipe)."""
    try:
        result = os.stat(file)
    except (OSError, ValueError):
        return None
    return (result.st_dev, result.st_ino) if stat.S_ISREG(result.st_mode) else None


# Text files, and output.

MAX_FILE = 8_000_000


def text_of(path: Path, name: str, faults: Faults) -> str | None:
    """The text of a file; None and a fault if it is too large or not text."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            message = "not a regular file"
            faults.note(Diagnostic(message, "name a YAML file", "", Place(name), code="unreadable-file"))
            return None
        if info.st_size > MAX_FILE:
            what = f"the file has {info.st_size} bytes"
            faults.note(Diagnostic(what, f"keep it under {MAX_FILE}", "", Place(name), code="too-large"))
            return None
        reading(path)
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
        faults.note(Diagnostic(fault, "check the path", "", Place(name), code="unreadable-file"))
    except UnicodeDecodeError as error:
        remedy = "save the file as UTF-8"
        faults.note(
            Diagnostic(
                f"byte {error.start} is not UTF-8 text", remedy, "", Place(name), code="unreadable-file"
            )
        )
    return None


# Atomic writing: a file is written completely or not at all, even if the writer is killed.

JOURNAL = "polymodel-files.txt"  # the journal: names of the files that polymodel wrote in a store
_UNFINISHED = re.compile(r"\..*\.new(\.\w+)?")
# Names of unfinished files, with their writer: host, process, and start time of the process.
_WRITER = re.compile(r"\..*\.polymodel-([0-9a-f]{8})-([1-9]\d{0,9})-(\d*)-[0-9a-f]{8}\.new(\.[^.]*)?")


@contextlib.contextmanager
def whole(path: str | os.PathLike[str], *, durable: bool = True, recorded: bool = False) -> Iterator[Path]:
    """A new file name next to `path` with the same extension; the file written there replaces `path`
    atomically. `path` stays unchanged if the writer fails or is killed; after a kill the new file remains
    until the next process writes into this folder.

    `durable`: the replacement happens only after the data has reached the disk, at the cost of some
    milliseconds, so that a power failure cannot leave a partial file. A pipe or a device is written directly;
    for a link, the file it refers to is replaced. `recorded`: both names are added to the folder's journal
    first. Raises OSError, and SpecError for a file that is also read.
    """
    spare(path)
    given = Path(path)
    if (given.exists() and not given.is_file()) or given.absolute().is_relative_to("/dev"):
        yield given
        return
    target = Path(os.path.realpath(given))
    fresh = unfinished(target)
    _clear_killed(fresh.parent)
    if recorded:
        record(fresh, target)
    try:
        yield fresh
        if durable:
            _to_disk(fresh)
        if target.exists():
            os.chmod(fresh, target.stat().st_mode & 0o7777)
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)


def unfinished(target: Path) -> Path:
    """A new name for a file that will become the target or a part of it. It identifies the writing
    process.
    """
    me = os.getpid()
    writer = f"polymodel-{_host()}-{me}-{born(me)}"
    return target.with_name(f".{target.stem[:40]}.{writer}-{os.urandom(4).hex()}.new{target.suffix}")


def _host() -> str:
    """Identifies the host, and the container on it, within which process numbers are unique."""
    try:
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbers = ""
    from hashlib import sha256  # only where files are written: its import takes as long as a small load

    return sha256(f"{os.uname().nodename} {numbers}".encode()).hexdigest()[:8]


@cache  # thousands of files may be written into one folder, and whoever is killed later has a next run
def _clear_killed(folder: Path) -> None:
    """Remove unfinished files of killed processes of this host, and no other files."""
    here = _host()
    with contextlib.suppress(OSError):  # a folder that cannot be listed, a file of another user
        for file in folder.iterdir():
            name = _WRITER.fullmatch(file.name)
            if name and name[1] == here and gone(int(name[2]), name[3]) and not file.is_symlink():
                file.unlink()


def _to_disk(path: Path) -> None:
    """Flush the file to disk; a power failure may still undo the replacement, which leaves the old file."""
    handle = os.open(path, os.O_RDWR)  # Windows wants one that may write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write the text as UTF-8, atomically. Raises OSError."""
    with whole(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


def record(*files: Path) -> None:
    """Add these files to the journal of their folder. Raises OSError."""
    known = recorded(files[0].parent)
    text = "".join(f"{f.name}\n" for f in files if f.name not in known)
    if text:
        with (files[0].parent / JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(text)


def recorded(folder: Path) -> frozenset[str]:
    """Names in the folder's journal: the files that polymodel wrote there, even if they no longer exist."""
    try:
        return frozenset((folder / JOURNAL).read_text(encoding="utf-8").split("\n")) - {""}
    except (OSError, UnicodeDecodeError):
        return frozenset()


def clear_unfinished(folder: Path) -> None:
    """Remove recorded unfinished files of killed processes; files that are not in the journal are left
    alone.
    """
    known = recorded(folder)
    for name in sorted(known):
        if _UNFINISHED.fullmatch(name) and "/" not in name and os.sep not in name:
            (folder / name).unlink(missing_ok=True)
    forget(folder)


def forget(folder: Path, *files: Path) -> None:
    """Remove from the journal these files and files that no longer exist; an empty journal is deleted."""
    known = recorded(folder)
    gone = {f.name for f in files}
    left = sorted(n for n in known if n not in gone and "/" not in n and (folder / n).is_file())
    if len(left) == len(known):
        return
    journal = folder / JOURNAL
    if left:
        write_text(journal, "".join(f"{n}\n" for n in left))
    else:
        journal.unlink(missing_ok=True)


# The packaged architectures, workloads and mappings, and how names find them.
#
# `arch/NAME.yaml`, `workloads/NAME.yaml`, and mappings of a workload for an architecture in
# `workloads/NAME/ARCH/VARIANT.yaml`. `NAME/VARIANT` names a mapping; `GROUP/NAME` a TeAAL spec, which stands
# in `workloads/GROUP/NAME.yaml`. `workloads/models.json` gives names to published models: a workload of the
# library and values of its template variables. A model has the mappings of its workload.

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*){0,2}\Z")
_PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel the libraries are inside the package, in a checkout next to it.
ROOTS = (_PACKAGE / "_library", _PACKAGE.parent)
PREFERRED = ("default", "tiled_fused", "fused", "unfused")


@dataclass(frozen=True)
class Model:
    """A published model: the workload whose template it fills in, the values, and their source."""

    workload: str
    about: str
    source: str
    variables: Mapping[str, object]


@dataclass(frozen=True)
class LibraryEntry:
    """A library entry: `kind` is arch or workload; `variant` names a mapping.

    `variables` are the values of template variables that the name stands for.
    """

    kind: str
    name: str
    path: Path
    variant: str = ""
    variables: Mapping[str, object] = field(default_factory=dict)


def is_name(text: str) -> bool:
    """True if `text` can be a library name rather than a path."""
    return bool(_NAME.match(text)) and not text.endswith((".yaml", ".yml", ".json"))


@cache
def _root() -> Path | None:
    for root in ROOTS:
        if (root / "arch").is_dir() and (root / "workloads").is_dir():
            return root
    return None


def names() -> tuple[str, ...]:
    """Names of all packaged architectures and workloads."""
    return (*architectures(), *workloads())


def architectures() -> tuple[str, ...]:
    root = _root()
    return tuple(sorted(p.stem for p in (root / "arch").glob("*.yaml"))) if root else ()


def workloads() -> tuple[str, ...]:
    """Names of the packaged workloads, published models among them."""
    root = _root()
    files = (p.name.removesuffix(".yaml") for p in (root / "workloads").glob("*.yaml")) if root else ()
    return tuple(sorted({*files, *models()}))


@cache
def models() -> Mapping[str, Model]:
    """The published models by name."""
    root = _root()
    if root is None:
        return {}
    written = json.loads((root / "workloads" / "models.json").read_text(encoding="utf-8"))
    return {name: Model(**entry) for name, entry in written.items()}


def variables(name: str) -> Mapping[str, object]:
    """The values of template variables that a name stands for."""
    result = find(name)
    return {} if result is None else result.variables


def _owner(workload: str) -> str:
    """The workload in whose folder the mappings stand."""
    model = models().get(workload)
    return workload if model is None else model.workload


def specs() -> tuple[str, ...]:
    """Names of the packaged TeAAL specs, `GROUP/NAME`."""
    root = _root()
    result = (root / "workloads").glob("*/*.yaml") if root else ()
    return tuple(sorted(f"{p.parent.name}/{p.name.removesuffix('.yaml')}" for p in result))


def variants(workload: str, arch: str | None) -> tuple[str, ...]:
    """Names of the packaged mappings of `workload`, for one architecture or for any."""
    root = _root()
    if root is None:
        return ()
    pattern = f"{arch or '*'}/*.yaml"
    return tuple(
        sorted({p.name.removesuffix(".yaml") for p in (root / "workloads" / _owner(workload)).glob(pattern)})
    )


def find(name: str) -> LibraryEntry | None:
    """The architecture, workload or TeAAL spec called `name`; of `NAME/VARIANT` the workload, and of
    `NAME/ARCH/VARIANT`, a mapping that may be used with another architecture."""
    root = _root()
    if root is None or not is_name(name):
        return None
    head, _, variant = name.partition("/")
    if variant and name in specs():
        return LibraryEntry("workload", name, root / "workloads" / f"{name}.yaml")
    if head in models():
        model = models()[head]
        path = root / "workloads" / f"{model.workload}.yaml"
        return LibraryEntry("workload", head, path, variant, model.variables)
    if head in workloads():
        return LibraryEntry("workload", head, root / "workloads" / f"{head}.yaml", variant)
    if not variant and head in architectures():
        return LibraryEntry("arch", head, root / "arch" / f"{head}.yaml")
    return None


def packaged(name: str) -> Mapping[str, Path]:
    """The files that `name` may refer to, by their full names: an architecture, a workload or a TeAAL spec,
    or the mappings `NAME/VARIANT` of a workload for each architecture that has one of this name."""
    found = find(name)
    if found is None or not found.variant:
        return {} if found is None else {name: found.path}
    arch, _, variant = found.variant.rpartition("/")
    paths = {a: mapping_path(found.name, a, variant) for a in ([arch] if arch else architectures())}
    return {f"{found.name}/{a}/{variant}": path for a, path in paths.items() if path is not None}


def mapping_path(workload: str, arch: str, variant: str) -> Path | None:
    """The mapping `variant` of the pair, None if there is none."""
    root = _root()
    if root is None or variant not in variants(workload, arch):
        return None
    return root / "workloads" / _owner(workload) / arch / f"{variant}.yaml"


def default_variant(workload: str, arch: str) -> str | None:
    """The mapping that is used when none is named: `default`, the only one, or the one that fuses most."""
    known = variants(workload, arch)
    if len(known) == 1:
        return known[0]
    return next((v for v in PREFERRED if v in known), None)


# Templates that only have variables filled in, which is what most files of the library are. Some have lines
# besides that are there only if a variable is given.
#
# jinja2 takes a fifth of the time of a small evaluation to import, so these files are rendered without it.
# What is rendered here, `template.render` renders to the same text; everything else is left to it.

_LONGEST = 100_000  # characters; templates above that are counted by the budget of `template.py`
# An upper-case name is neither a keyword nor a function of jinja2; a literal contains no escapes.
_PLACEHOLDER = re.compile(
    r"""\{\{\x20*([A-Z][A-Z0-9_]*)\x20*
    (?:\|\x20*default\((?:(0|[1-9][0-9]{0,17})|"([^"\\\n{}]*)"|'([^'\\\n{}]*)')\)\x20*)?\}\}""",
    re.VERBOSE,
)
_IF_GIVEN = re.compile(r"\{% if ([A-Z][A-Z0-9_]*) is defined %\}(.*?)\{% endif %\}", re.DOTALL)
_FILLED = re.compile(f"{_PLACEHOLDER.pattern}|(?-x:{_IF_GIVEN.pattern})", re.VERBOSE | re.DOTALL)
_OPENING = re.compile(r"\{[{%#]")
_ELSEWHERE = re.compile("[\r\ue000-\ue003]")  # what `template.render` normalises or refuses


@dataclass(frozen=True)
class Variable:
    """A template variable as `{% variable NAME = default, ... %}` declares it, with its value in a file.

    Allowed values: one of `among`, or a number from `least` to `most` that `multiple_of` divides; an integer
    if the default is one.
    """

    name: str
    value: object
    default: object
    about: str = ""
    among: tuple[object, ...] = ()
    least: int | float | None = None
    most: int | float | None = None
    multiple_of: int | None = None

    def allowed(self) -> str:
        """The allowed values in words; empty if any value is allowed."""
        if self.among:
            return f"one of {', '.join(map(str, self.among))}"
        if isinstance(self.default, (list, str)):
            return "a list" if isinstance(self.default, list) else ""
        words = "a whole number" if isinstance(self.default, int) else "a number"
        if self.multiple_of is not None:
            words = f"a multiple of {self.multiple_of}"
        if self.least is not None and self.most is not None:
            return f"{words} from {self.least} to {self.most}"
        limits = [f"at least {self.least}"] if self.least is not None else []
        limits += [f"at most {self.most}"] if self.most is not None else []
        return ", ".join([words, *limits])

    def fault(self) -> str:
        """The code of the fault in the value; empty if it is allowed."""
        value = self.value
        if self.among:
            alike = [a for a in self.among if type(a) is type(value)]
            return "" if value in alike else "unknown-choice"
        if value is None and self.default is None:
            return ""
        if isinstance(self.default, (list, str)):
            return "" if isinstance(value, type(self.default)) else "wrong-type"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "not-a-number"
        if isinstance(self.default, int) and not isinstance(value, int):
            return "not-an-integer"
        outside = self.least is not None and not value >= self.least
        if outside or (self.most is not None and not value <= self.most):
            return "out-of-range"
        return "inconsistent-values" if self.multiple_of and value % self.multiple_of else ""


@dataclass(frozen=True)
class RefusedVariable(Diagnostic):
    """The detail of the fault for a template variable whose value is not allowed: its name."""

    name: str = ""


@dataclass(frozen=True)
class Rendered:
    """The text to parse, its source, the template variables that the file has, and those that it declares."""

    text: str
    source: Source
    variables: frozenset[str]
    declared: tuple[Variable, ...] = ()


def is_template(text: str) -> bool:
    """True if the text contains template syntax."""
    return _OPENING.search(text) is not None


def filled(text: str, plain: Source, variables: Mapping[str, object]) -> Rendered | None:
    """The file with its variables substituted; None if that needs more than text and integer substitution."""
    if len(text) > _LONGEST or _ELSEWHERE.search(text):
        return None
    pieces: list[str] = []
    names: set[str] = set()
    gone: set[int] = set()
    end = 0
    for place in _FILLED.finditer(text):
        name, *literals, asked, inside = place.groups()
        value = variables[name] if name in variables else next((v for v in literals if v is not None), None)
        written = _written(value) if asked is None else _left_out(asked, inside, variables, names)
        if written is None:
            return None
        names.add(name or asked)
        pieces += (text[end : place.start()], written)
        gone |= {text.count("\n", 0, place.start()) + 1 + i for i in range(place[0].count("\n"))}
        end = place.end()
    pieces.append(text[end:])
    # A brace before a placeholder would make it a dictionary.
    if any(is_template(piece) or piece.endswith("{") for piece in pieces[::2]):
        return None
    lines = tuple("".join(pieces).split("\n"))
    origin = tuple(n for n in range(1, len(plain.lines) + 1) if n not in gone)
    source = Source(plain.file, lines, plain.lines, origin, plain.folder)
    return Rendered("\n".join(lines), source, frozenset(names))


def _left_out(name: str, text: str, variables: Mapping[str, object], names: set[str]) -> str | None:
    """Return the remainder of a text that applies only if a variable is given: none. Variables that it reads
    are added to `names`; None if the variable is given, or the text contains anything but filled-in
    variables."""
    names |= {place[1] for place in _PLACEHOLDER.finditer(text)}
    return None if name in variables or is_template(_PLACEHOLDER.sub("", text)) else ""


def effective(
    printed: Callable[[Mapping[str, object]], tuple[Rendered | None, object]],
    variables: Mapping[str, object],
    rendered: Rendered,
    defaults: Mapping[str, object],
) -> set[str]:
    """Those variables with `defaults` that change what a file prints: it is printed without each of them."""
    declared = {v.name for v in rendered.declared}

    def without(name: str) -> Rendered | None:
        others = {n: v for n, v in variables.items() if n != name}
        return printed(others if name in declared else {**others, name: defaults[name]})[0]

    found = {name: without(name) for name in defaults if name in rendered.variables}
    return {name for name, other in found.items() if other is None or other.text != rendered.text}


def _written(value: object) -> str | None:
    """The value as a template prints it; None unless it is an integer or a short text of one line."""
    if type(value) is int and abs(value) < 10**18:
        return str(value)
    if type(value) is str and len(value) < 1000 and not _ELSEWHERE.search(value) and "\n" not in value:
        return value
    return None
