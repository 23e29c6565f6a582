"""What is read is not written over: one home for the rule that no output is an input.

A command declares what it is going to write before it reads anything, so that a file that is both is refused
before work begins; `spec.output.whole`, through which everything is written, asks once more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias

from polymodel.errors import Diagnostic, SpecError

File: TypeAlias = "str | os.PathLike[str]"
Mark: TypeAlias = "tuple[int, int]"


@dataclass
class _Watch:
    """Files by what the disk knows them by: links, hard links and other spellings are the same file."""

    read: dict[Mark, str] = field(default_factory=dict)
    written: dict[Mark, str] = field(default_factory=dict)


_WATCH: ContextVar[_Watch | None] = ContextVar("inputs", default=None)


@contextmanager
def watching() -> Iterator[None]:
    """Meanwhile files that are read are noted, and are written over by nothing."""
    token = _WATCH.set(_Watch())
    try:
        yield
    finally:
        _WATCH.reset(token)


@contextmanager
def keeping(files: Iterable[File]) -> Iterator[None]:
    """Meanwhile nothing is written over these files, nor over those that are kept already."""
    before = _WATCH.get() or _Watch()
    mine = {mark: str(file) for file in files if (mark := _mark(file)) is not None}
    token = _WATCH.set(_Watch({**before.read, **mine}, before.written))
    try:
        yield
    finally:
        _WATCH.reset(token)


def reading(file: File) -> None:
    """Note a file that is read. SpecError if it is one of those that will be written."""
    watch, mark = _WATCH.get(), _mark(file)
    if watch is None or mark is None:
        return
    watch.read.setdefault(mark, str(file))
    if mark in watch.written:
        raise _both(watch.written[mark], str(file))


def claim(*files: File) -> None:
    """Note files that will be written. SpecError for one that was read already."""
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
    """SpecError if the file, which is about to be written, is an input."""
    watch = _WATCH.get()
    mark = _mark(file) if watch is not None and watch.read else None
    if watch is not None and mark is not None and mark in watch.read:
        raise _both(str(file), watch.read[mark])


def _both(output: str, source: str) -> SpecError:
    what = "it is an input" if output == source else f"it is the input {source}"
    return SpecError([Diagnostic(f"cannot write {output}: {what}", "choose another place to write to")])


def _mark(file: File) -> Mark | None:
    """None where there is no such file, or none that could be lost."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
