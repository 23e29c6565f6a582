"""`load`: from files, library names or Python objects to a checked spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from polymodel.errors import Diagnostic
from polymodel.loading.spec import Spec
from polymodel.spec import Arch, MappingSpec, Renames, Workload
from polymodel.spec import symbols as naming
from polymodel.spec.base import SchemaObject
from polymodel.spec.document import Document, check_variables
from polymodel.spec.explore_schema import ExploreSection
from polymodel.spec.numbers import Value
from polymodel.spec.plain import by_name, plainly
from polymodel.spec.sources import Pair, add_default_mapping, read_source
from polymodel.spec.sweep_schema import SweepSection
from polymodel.spec.teaal.arch import arch_of

Source = str | Path | Mapping[str, object] | SchemaObject


def load(
    *sources: Source,
    variables: Mapping[str, object] | None = None,
    symbols: Mapping[str, Value] | None = None,
    **template_variables: object,
) -> Spec:
    """Read a spec from files, library names, mappings or schema objects, and check it.

    A name such as `"gpt3_6.7B"` finds a packaged workload or architecture, `"gpt3_6.7B/unfused"` a
    workload with one of its mappings; a packaged pair brings its default mapping, unless a source
    has a `mapping:`. Template variables go to every template. `symbols` gives values to symbols, also to
    ones that the spec uses but does not declare. Raises SpecError with every fault; symbols without a value
    are no fault here (see `Spec.check`).
    """
    given = {**by_name("variables", variables or {}, '{"N_TOKENS": 2048}'), **plainly(template_variables)}
    document = Document()
    if not sources:
        document.faults.note(Diagnostic("load: there is nothing to load", "name a file or a library spec"))
    pair = Pair()
    for source in sources:
        read_source(source, document, given, pair)
    add_default_mapping(document, given, pair)
    check_variables(given, document)
    if "renames" in document.sections and not document.may_have("workload"):
        document.faults.add(("renames",), "renames without a workload", "add `workload:`", key=True)
    spec = _with_symbols(_spec(document, given, pair), naming.given_symbols(symbols), document)
    if len(document.faults):
        # What can be resolved is checked as well, so that all faults are told at once.
        document.faults.extend(d for d in spec._resolution.diagnostics if document.certain(d))
        document.faults.raise_if_any()
    return spec._checked()


def _with_symbols(spec: Spec, symbols: Mapping[str, object], document: Document) -> Spec:
    words = spec._words() | naming.words_of([e.value.plain() for e in document.entries.values()])
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
    assert swept is None or isinstance(swept, SweepSection)
    assert explored is None or isinstance(explored, ExploreSection)
    assert workload is None or isinstance(workload, Workload)
    assert renames is None or isinstance(renames, Renames)
    assert arch is None or isinstance(arch, Arch)
    assert mapping is None or isinstance(mapping, MappingSpec)
    if arch is None and document.teaal is not None:
        arch, _ = arch_of(document.teaal)
    return Spec(
        raw_workload=workload,
        raw_renames=renames,
        raw_arch=arch,
        raw_mapping=mapping,
        raw_sweep=swept,
        raw_explore=explored,
        declared={**document.symbols, **document.bound},
        extras=dict(document.extras),
        variables=dict(given),
        files=tuple(f for f in document.files if f),
        folder=document.folders.get("arch", ""),
        data_folder=document.folders.get("workload", ""),
        library=(pair.workload, pair.arch),
        chosen=pair.chosen,
        locator=document.faults.locator,
        raw_teaal=document.teaal,
        template_variables=tuple(sorted(document.variables)),
    )
