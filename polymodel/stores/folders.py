"""Folders of stores, and fingerprints of what the figures in them depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.loading import Spec


def parts_of(s: Spec) -> list[object]:
    """All that a spec's figures depend on, but for its mapping."""
    parts: list[object] = [s.raw_workload, s.raw_renames, s.raw_arch, sorted(s.declared.items(), key=str)]
    return [*parts, sorted(s.given.items()), sorted(s.variables.items(), key=str)]


def marked(parts: Sequence[object]) -> str:
    """A fingerprint of what can be written."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()


def check_store(store: object) -> None:
    """Raises SpecError for what is no folder, and can be none."""
    if store is None:
        return
    if not isinstance(store, (str, Path)):
        raise _wrong(f"store={store!r} is not a folder", "name a folder, e.g. store='out'")
    if Path(store).is_file():
        raise _wrong(f"store={str(store)!r} is a file", "name a folder; it is made if it is missing")


def folder_of(store: str | Path) -> Path:
    """The folder of a store, made if it is missing. Raises SpecError."""
    check_store(store)
    with writing(store):
        Path(store).mkdir(parents=True, exist_ok=True)
    return Path(store)


def _wrong(message: str, remedy: str) -> SpecError:
    return SpecError([Diagnostic(message, remedy)])
