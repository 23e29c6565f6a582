"""What a call of `load` may name: files, library names, mappings, schema objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from polymodel.errors import Diagnostic
from polymodel.spec import library
from polymodel.spec.base import SchemaObject
from polymodel.spec.document import Document, add_object, existing, read_file, read_mapping
from polymodel.spec.faults import close_to, suggestion


@dataclass
class Pair:
    """Library names met while loading."""

    workload: str | None = None
    arch: str | None = None
    variant: str = ""
    chosen: str = ""


def read_source(source: object, document: Document, variables: Mapping[str, object], pair: Pair) -> None:
    """Read one source into the document; every fault is noted."""
    if isinstance(source, SchemaObject):
        add_object(source, document)
    elif isinstance(source, Mapping):
        read_mapping({str(k): v for k, v in source.items()}, document)
    elif isinstance(source, Path):
        path = existing(str(source), document)
        if path is not None:
            read_file(path, document, variables)
    elif isinstance(source, str):
        _read_text(source, document, variables, pair)
    else:
        plain = source is None or isinstance(source, (int, float))
        shown = repr(source) if plain else f"a {type(source).__name__}"
        remedy = "give a path, a name or a mapping"
        document.faults.note(Diagnostic(f"load: {shown} is no source of a spec", remedy))


def _read_text(text: str, document: Document, variables: Mapping[str, object], pair: Pair) -> None:
    if "\n" in text:
        remedy = "write it to a file, or parse it and pass the mapping"
        document.faults.note(Diagnostic("YAML text is not a source", remedy))
        return
    if not library.is_name(text) or os.path.isfile(text):
        path = existing(text, document)
        if path is not None:
            read_file(path, document, variables)
        return
    found = library.find(text)
    if found is None:
        document.unread = True
        known = (*library.names(), *library.specs())
        near = close_to(text, library.specs()) if "/" in text else ""
        near = f"did you mean {near}?" if near else suggestion(text.partition("/")[0], known, "library names")
        document.faults.note(Diagnostic(f"{text!r} is neither a file nor a library name", near))
        return
    if found.kind == "arch":
        pair.arch = found.name
    else:
        pair.variant = found.variant or pair.variant
        if pair.workload == found.name:
            return
        pair.workload = found.name
    read_file(found.path, document, variables)


def add_default_mapping(document: Document, variables: Mapping[str, object], pair: Pair) -> None:
    """The mapping that a pair of library names brings, unless a source has one."""
    if pair.workload is None:
        return
    if pair.arch is None:
        if pair.variant:
            message = f"mapping {pair.variant} of {pair.workload} needs a library architecture"
            document.faults.note(
                Diagnostic(message, suggestion("", library.architectures(), "architectures"))
            )
        return
    given = "mapping" in document.entries or "mapping" in document.sections
    variant = pair.variant or (None if given else library.default_variant(pair.workload, pair.arch))
    if variant is None:
        return
    path = library.mapping_path(pair.workload, pair.arch, variant)
    if path is None:
        known = library.variants(pair.workload, pair.arch)
        message = f"there is no mapping {variant} of {pair.workload} for {pair.arch}"
        document.faults.note(Diagnostic(message, suggestion(variant, known, "mappings")))
        return
    others = [f"{pair.workload}/{v}" for v in library.variants(pair.workload, pair.arch) if v != variant]
    default = f" (the default; also: {', '.join(others)})" if others and not pair.variant else ""
    pair.chosen = f"{pair.workload}/{variant}{default}"
    read_file(path, document, variables)
