"""`load`: from files, library names or Python objects to a checked spec."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.loading.spec import Spec
from polymodel.spec import document as naming
from polymodel.spec import files
from polymodel.spec.arch_schema import Arch
from polymodel.spec.base import SchemaObject
from polymodel.spec.document import (
    Document,
    UnusedVariable,
    add_object,
    alike,
    check_variables,
    existing,
    read_file,
    read_mapping,
    symbol_faults,
    unused_variable,
)
from polymodel.spec.faults import Faults, Joined, by_name, close_to, plainly, suggestion
from polymodel.spec.numbers import Value
from polymodel.spec.section_schemas import (
    CodesignSection,
    ExploreSection,
    MappingSpec,
    Renames,
    SweepSection,
    Workload,
)

Source = str | Path | Mapping[str, object] | SchemaObject


def load(
    *sources: Source,
    variables: Mapping[str, object] | None = None,
    symbols: Mapping[str, Value] | None = None,
    **template_variables: object,
) -> Spec:
    """Read a spec from files, library names, mappings or schema objects, and check it.

    A name such as `"gpt3_6.7B"` refers to a packaged workload or architecture, `"gpt3_6.7B/unfused"` to a
    workload with one of its mappings; a packaged pair includes its default mapping, unless a source has a
    `mapping:`. Sections of a TeAAL spec may stand in several sources. Template variables are passed to every
    template. `symbols` gives values to symbols, including ones that the spec uses but does not declare.
    Raises SpecError with every fault; symbols without a value are not faults here (see `Spec.check`).
    """
    given = {**by_name("variables", variables or {}, '{"N_TOKENS": 2048}'), **plainly(template_variables)}
    values = {**_model_variables(sources), **given}
    document = Document(asked=frozenset(given))
    if not sources:
        message = "load: there is nothing to load"
        document.faults.note(Diagnostic(message, "name a file or a library spec", code="missing-argument"))
    pair = Pair()
    for source in sources:
        read_source(source, document, values, pair)
    if document.teaal_entries:
        # Imported only here: the TeAAL reader costs a tenth of a small load, and few specs are TeAAL specs.
        from polymodel.spec.teaal.schema import read_into

        read_into(document)
    add_default_mapping(document, values, pair)
    served = _networks_of(document, given, symbols)
    document.variables |= {n for spec in served for n in spec.template_variables}
    check_variables(given, document)
    if "renames" in document.sections and not document.may_have("workload"):
        message = "renames without a workload"
        document.faults.add(("renames",), message, "add `workload:`", key=True, code="missing-section")
    of_networks = {n for spec in served for n in spec.symbols}
    spec = _with_symbols(_spec(document, given, pair), naming.coerce_symbols(symbols), document, of_networks)
    if len(document.faults):
        # All parts that can be resolved are checked, so that all faults are reported together.
        document.faults.extend(d for d in spec._resolution.diagnostics if document.certain(d))
        document.faults.raise_if_any()
    return spec._checked()


def _with_symbols(
    spec: Spec, symbols: Mapping[str, object], document: Document, more: Collection[str]
) -> Spec:
    """The spec with values of symbols; `more`: symbols that it may have besides its own."""
    words = spec._words() | {*more} | naming.words_of([e.value.plain() for e in document.entries.values()])
    used = symbols.keys() if document.unread else symbols.keys() & words
    known = {**spec.symbols, **dict.fromkeys(used)}
    return (
        replace(spec, given=naming.right_symbols(symbols, known, document.faults, document.variables))
        if symbols
        else spec
    )


def _spec(document: Document, given: Mapping[str, object], pair: Pair) -> Spec:
    found = document.sections
    workload, renames, arch, mapping = (found.get(n) for n in ("workload", "renames", "arch", "mapping"))
    swept, explored = found.get("sweep"), found.get("explore", document.rest)
    machines = found.get("codesign")
    assert swept is None or isinstance(swept, SweepSection)
    assert explored is None or isinstance(explored, ExploreSection)
    assert machines is None or isinstance(machines, CodesignSection)
    assert workload is None or isinstance(workload, Workload)
    assert renames is None or isinstance(renames, Renames)
    assert arch is None or isinstance(arch, Arch)
    assert mapping is None or isinstance(mapping, MappingSpec)
    if arch is None and document.teaal is not None:
        from polymodel.spec.teaal.convert import arch_of

        arch, _ = arch_of(document.teaal)
    return Spec(
        raw_workload=workload,
        raw_renames=renames,
        raw_arch=arch,
        raw_mapping=mapping,
        raw_sweep=swept,
        raw_explore=explored,
        raw_codesign=machines,
        declared={**document.symbols, **document.bound},
        extras=dict(document.extras),
        variables=dict(given),
        files=tuple(f for f in document.files if f),
        folder=document.folders.get("arch", ""),
        data_folder=document.folders.get("workload", ""),
        codesign_folder=document.folders.get("codesign", ""),
        library=(pair.workload, pair.arch),
        chosen=pair.chosen,
        locator=document.faults.locator,
        raw_teaal=document.teaal,
        template_variables=tuple(sorted(document.variables)),
        variable_declarations=tuple(document.declared.values()),
        ineffective=_ineffective(document),
        replaced=_replaced(document),
    ).with_sparse(mapping.sparse if mapping is not None else {})


def _replaced(document: Document) -> dict[str, int | float | str]:
    """The values of symbols that other files declare and the mapping's file replaces by other numbers."""
    declared = {n: v for n in document.bound if (v := document.symbols.get(n)) is not None}
    return {n: v for n, v in declared.items() if not alike(v, document.bound[n], document.symbols)}


def _ineffective(document: Document) -> tuple[str, ...]:
    """Given template variables that change nothing although their values are not the defaults."""
    given = (v for v in document.declared.values() if v.name in document.asked - document.effective)
    return tuple(v.name for v in given if v.value != v.default)


@dataclass
class Pair:
    """Library names found while loading."""

    workload: str | None = None
    arch: str | None = None
    variant: str = ""
    chosen: str = ""


def read_source(source: object, document: Document, variables: Mapping[str, object], pair: Pair) -> None:
    """Read one source into the document; faults are collected."""
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
        message = f"load: {shown} is not a source of a spec"
        document.faults.note(Diagnostic(message, remedy, code="wrong-type"))


def _library_name(text: str) -> bool:
    return files.is_name(text) and not os.path.isfile(text)


def _model_variables(sources: Sequence[Source]) -> dict[str, object]:
    """The template variables of the published model among the sources; they are passed to every template."""
    names = [s for s in sources if isinstance(s, str) and _library_name(s)]
    return {name: value for text in names for name, value in files.variables(text).items()}


def _read_text(text: str, document: Document, variables: Mapping[str, object], pair: Pair) -> None:
    if "\n" in text:
        remedy = "write it to a file, or parse it and pass the mapping"
        document.faults.note(Diagnostic("YAML text is not a source", remedy, code="wrong-type"))
        return
    if not _library_name(text):
        path = existing(text, document)
        if path is not None:
            read_file(path, document, variables)
        return
    found = files.find(text)
    if found is None:
        document.unread = True
        message = f"{text!r} is neither a file nor a library name"
        document.faults.note(Diagnostic(message, near_name(text), code="unknown-name"))
        return
    if found.kind == "arch":
        pair.arch = found.name
    else:
        pair.variant = found.variant or pair.variant
        if pair.workload == found.name:
            return
        pair.workload = found.name
    read_file(found.path, document, variables)


def near_name(text: str) -> str:
    """The remedy for a name that the library does not have."""
    near = close_to(text, files.specs()) if "/" in text else ""
    if near:
        return f"did you mean {near}?"
    return suggestion(text.partition("/")[0], (*files.names(), *files.specs()), "library names")


def add_default_mapping(document: Document, variables: Mapping[str, object], pair: Pair) -> None:
    """Add the default mapping of a pair of library names, unless a source has one. Its template receives the
    values of the variables that the workload declares."""
    if pair.workload is None:
        return
    named, _, wanted = pair.variant.rpartition("/")
    arch = named or pair.arch  # a mapping that is named with its architecture may be used with any other
    if arch is None:
        if wanted:
            message = f"mapping {wanted} of {pair.workload} needs a library architecture"
            made = [a for a in files.architectures() if wanted in files.variants(pair.workload, a)]
            remedy = suggestion("", files.architectures(), "architectures")
            if made:
                whole = ", ".join(f"{pair.workload}/{a}/{wanted}" for a in made)
                remedy = f"for an architecture of your own, name the one that it is written for: {whole}"
            document.faults.note(Diagnostic(message, remedy, code="unknown-name"))
        return
    given = "mapping" in document.entries or "mapping" in document.sections
    variant = wanted or (None if given else files.default_variant(pair.workload, arch))
    if variant is None:
        return
    path = files.mapping_path(pair.workload, arch, variant)
    if path is None:
        known = files.variants(pair.workload, arch)
        message = f"there is no mapping {variant} of {pair.workload} for {arch}"
        document.faults.note(Diagnostic(message, suggestion(variant, known, "mappings"), code="unknown-name"))
        return
    others = [f"{pair.workload}/{v}" for v in files.variants(pair.workload, arch) if v != variant]
    default = f" (the default; also: {', '.join(others)})" if others and not pair.variant else ""
    pair.chosen = f"{pair.workload}/{variant}{default}"
    if document.refused:  # only the variables that this mapping reads are known
        from polymodel.spec.template import names_in

        document.variables |= names_in(path.read_text(encoding="utf-8")) or set(variables)
        return
    read_file(path, document, {v.name: v.value for v in document.declared.values()} | {**variables})


def load_many(
    sides: Mapping[str, Sequence[Source]], variables: Mapping[str, object], symbols: Mapping[str, Value]
) -> tuple[list[Spec], list[str]]:
    """One spec per side, in order, and a note for each value that only some sides use.

    `sides`: name -> sources. A template variable or symbol must be known to at least one of them. Raises
    SpecError with the faults of all.
    """
    faults = Faults()
    specs: list[Spec] = []
    lacking: list[set[str]] = []
    for sources in sides.values():
        lacking.append(_unused(sources, variables))
        with faults.noting():
            specs.append(
                load(*sources, variables={n: v for n, v in variables.items() if n not in lacking[-1]})
            )
    if len(specs) == len(sides):  # otherwise it is not known which names are unknown
        templates = sorted({n for s in specs for n in s.template_variables})
        known = {n: None for spec in specs for n in spec.symbols}
        for name in (n for n in variables if all(n in unused for unused in lacking)):
            faults.note(unused_variable(name, known, templates))
        faults.extend(symbol_faults(symbols, known, templates))
    faults.raise_if_any()
    notes = [_note("--var", n, sides, [n not in unused for unused in lacking]) for n in variables]
    notes += [_note("--set", n, sides, [n in spec.symbols for spec in specs]) for n in symbols]
    bound = [s.bind(**{n: v for n, v in symbols.items() if n in s.symbols}) for s in specs]
    return bound, [n for n in notes if n]


def with_workload(spec: Spec, sources: Sequence[str], folder: str, whose: str) -> Spec:
    """The spec with the workload of other sources, whose files are searched in `folder` first. Template
    variables of the spec are passed to those templates that know them. Raises SpecError; `whose`: the
    workload, in words."""
    names = _relative_sources(sources, folder)
    lacking = _unused(names, spec.variables)
    result = load(*names, variables={n: v for n, v in spec.variables.items() if n not in lacking})
    result = result.bind(**{n: v for n, v in spec.given.items() if n in result.symbols})
    faults = []
    if result.raw_workload is None:
        message = f"{whose} has no `workload:`"
        faults.append(Diagnostic(message, "name a file that has one", code="missing-section"))
    if result.raw_arch is not None:
        fault = f"{whose} has an `arch:` of its own"
        faults.append(Diagnostic(fault, "the machine is that of the spec", code="conflicting-arguments"))
    clash = [n for n in result.symbols if n in spec.symbols and result.symbols[n] != spec.symbols[n]]
    if clash:
        what = f"{whose} has other values of {', '.join(clash)} than the machine"
        faults.append(Diagnostic(what, "give its symbols names of their own", code="inconsistent-values"))
    if faults:
        raise SpecError(faults)
    theirs = tuple(n for n in ("workload", "renames", "explore") if getattr(result, f"raw_{n}") is not None)
    return replace(
        spec,
        raw_workload=result.raw_workload,
        raw_renames=result.raw_renames or spec.raw_renames,
        raw_explore=result.raw_explore or spec.raw_explore,
        declared={**spec.declared, **result.declared},
        files=(*spec.files, *result.files),
        data_folder=result.data_folder,
        library=(result.library[0], spec.library[1]),
        locator=Joined(result.locator, spec.locator, theirs),
    )._checked()


def _relative_sources(sources: Sequence[str], folder: str) -> list[str]:
    """The same sources, with the paths of their files relative to the folder."""
    beside = ((str(path), text) for text in sources for path in [Path(folder) / text])
    return [path if os.path.isfile(path) else text for path, text in beside]


def _networks_of(document: Document, variables: Mapping[str, object], symbols: object) -> list[Spec]:
    """The workloads of the networks of a `codesign:` section, if they may know variables or symbols that are
    given. Faults in them are reported by the search."""
    section = document.sections.get("codesign")
    result: list[Spec] = []
    if isinstance(section, CodesignSection) and (variables or symbols):
        for sources in (sources for layers in section.layers.values() for sources, _ in layers):
            names = _relative_sources(sources, document.folders.get("codesign", ""))
            with suppress(SpecError):
                known = {n: v for n, v in variables.items() if n not in _unused(names, variables)}
                result.append(load(*names, variables=known))
    return result


def _unused(sources: Sequence[Source], variables: Mapping[str, object]) -> set[str]:
    """Template variables that these sources do not know."""
    try:
        load(*sources, variables=variables)
    except SpecError as error:
        return {d.name for d in error.diagnostics if isinstance(d, UnusedVariable)}
    return set()


def _note(option: str, name: str, sides: Mapping[str, object], takes: Sequence[bool]) -> str:
    """The sides that use a value, if not all do."""
    if all(takes):
        return ""
    takers = " and ".join(side for side, it in zip(sides, takes, strict=True) if it)
    return f"{option} {name} is for {takers} alone"
