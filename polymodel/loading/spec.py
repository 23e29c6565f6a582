"""`Spec`: the sections as read, resolved against symbols and against each other, with every fault."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, fields, replace
from functools import cached_property
from os.path import isfile
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.architecture.resolve import resolve_arch
from polymodel.errors import Diagnostic, PolymodelError, SpecError
from polymodel.frozen import dataclass
from polymodel.loading.typos import likely_typos, unlikely_numbers
from polymodel.mapping.checks import check_mapping
from polymodel.mapping.looptree import LoopTree, Scheduler
from polymodel.mapping.mapspace_constraints import check_section
from polymodel.mapping.resolve import (
    ResolvedMapping,
    bind_tree,
    check_bound,
    resolve_mapping,
    unbound_symbols,
)
from polymodel.schedule.legality import faults_of
from polymodel.schedule.relations import schedule_relation
from polymodel.spec import document as naming
from polymodel.spec import files as library
from polymodel.spec.arch_schema import Arch, SparseSection
from polymodel.spec.document import Document, existing, read_file
from polymodel.spec.faults import (
    Faults,
    Joined,
    Locator,
    NodeLocator,
    Without,
    check_classes,
    in_reading_order,
    plainly,
    suggestion,
)
from polymodel.spec.files import Variable, keeping
from polymodel.spec.numbers import Value
from polymodel.spec.section_schemas import (
    CodesignSection,
    EinsumRenames,
    ExploreSection,
    MappingSpec,
    Renames,
    SweepSection,
    Workload,
    mentions_sparsity,
    without_tensors,
)
from polymodel.workload.einsum import Cascade
from polymodel.workload.resolve import Resolved, resolve_workload

if TYPE_CHECKING:
    from polymodel.mapping.teaal import Derived
    from polymodel.spec.teaal.records import TeaalSpec

_PARTS: dict[str, tuple[type, ...]] = {
    "raw_workload": (Workload, NoneType),
    "raw_renames": (Renames, NoneType),
    "raw_arch": (Arch, NoneType),
    "raw_mapping": (MappingSpec, LoopTree, NoneType),
    "raw_sweep": (SweepSection, NoneType),
    "raw_explore": (ExploreSection, NoneType),
    "raw_codesign": (CodesignSection, NoneType),
}


@dataclass(frozen=True, eq=False)
class Spec:
    """A checked spec. `workload`, `arch` and `mapping` are resolved against `symbols`.

    The `raw_*` fields are the schema objects as written. `files` lists the files read; `library` is the
    (workload, architecture) pair of library names, where known; `chosen` is the name of the mapping as
    requested, or says that it is the default one. `raw_teaal` is a TeAAL spec as written; it provides
    `raw_workload` and, where possible, the mapping. `template_variables`: names known to the templates that
    were read; `variable_declarations`: their declarations; `variables`: the values given,
    `ineffective` those of them that change nothing; `replaced`: what other files declare for symbols whose
    values come from the mapping's file. `sparse_sections`: sections `sparse` of components that came with a
    mapping or were chosen for it; `raw_arch` contains them.
    """

    raw_workload: Workload | None = None
    raw_renames: Renames | None = None
    raw_arch: Arch | None = None
    raw_mapping: MappingSpec | LoopTree | None = None
    raw_sweep: SweepSection | None = None
    raw_explore: ExploreSection | None = None
    raw_codesign: CodesignSection | None = None
    declared: Mapping[str, Value | str | None] = field(default_factory=dict)
    given: Mapping[str, Value] = field(default_factory=dict)
    extras: Mapping[str, object] = field(default_factory=dict)
    variables: Mapping[str, object] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    folder: str = ""
    data_folder: str = ""
    codesign_folder: str = ""
    library: tuple[str | None, str | None] = (None, None)
    chosen: str = ""
    locator: Locator = field(default_factory=lambda: Faults().locator)
    raw_teaal: TeaalSpec | None = None
    template_variables: tuple[str, ...] = ()
    variable_declarations: tuple[Variable, ...] = ()
    ineffective: tuple[str, ...] = ()
    replaced: Mapping[str, Value | str] = field(default_factory=dict)
    sparse_sections: Mapping[str, SparseSection] = field(default_factory=dict)

    def __post_init__(self) -> None:
        remedy = "pm.load(...) makes specs"
        check_classes(self, remedy, _PARTS)

    @cached_property
    def symbols(self) -> Mapping[str, Value | None]:
        """Every symbol with its value, None for one without a value."""
        result = dict(naming.symbol_values(self.declared, self.given, Faults(self.locator)))
        for name in unbound_symbols(self.template) if self.raw_mapping and self.template else ():
            result.setdefault(name, None)
        return result

    @cached_property
    def teaal(self) -> TeaalSpec | None:
        """The TeAAL spec with the values of symbols filled in; None for any other spec."""
        if self.raw_teaal is None:
            return None
        # Imported only here: the TeAAL reader costs a tenth of a small load, and few specs are TeAAL specs.
        from polymodel.spec.teaal.convert import bound

        return bound(self.raw_teaal, self.symbols, Faults())

    @property
    def remarks(self) -> tuple[str, ...]:
        """Tensors whose names look misspelt; parts of a TeAAL spec that a dense count ignores, and the reason
        if it has no mapping."""
        derived, workload = self._resolution.derived, self._resolution.workload
        result: tuple[str, ...] = ()
        if self.raw_teaal is not None:
            from polymodel.spec.teaal.convert import arch_of

            own, result = arch_of(self.raw_teaal)
            result = result if self.raw_arch in (own, None) else ()
        if derived is not None:
            from polymodel.mapping.teaal import why

            result += derived.remarks + ((f"no mapping: {why(derived.error)}",) if derived.error else ())
        result += likely_typos(workload.cascade) if workload is not None else ()
        return result + self.variable_remarks + self.number_remarks

    @property
    def variable_remarks(self) -> tuple[str, ...]:
        """Given template variables that change nothing, and symbols that the mapping's file replaces."""
        known = {v.name: v for v in self.variable_declarations}
        unused = tuple(
            f"template variable {name} = {known[name].value} changes nothing, with the others as they are"
            + (f" ({known[name].about})" if known[name].about else "")
            for name in self.ineffective
        )
        return unused + tuple(
            f"symbol {name} is {self.declared[name]}, from the file of the mapping, which replaces {other}: "
            f"set {name} to choose another value"
            for name, other in self.replaced.items()
            if name not in self.given
        )

    @property
    def number_remarks(self) -> tuple[str, ...]:
        """Numbers that are probably mistaken: joules for picojoules, leading zeros, magnitudes that count as
        0."""
        sections = self.locator.sections if isinstance(self.locator, NodeLocator) else {}
        return unlikely_numbers(sections, self.raw_arch, self._resolution.arch)

    @property
    def mapping_remarks(self) -> tuple[str, ...]:
        """Where the mapping of a TeAAL spec differs from the spec as written, such as loops that no fanout
        can hold."""
        return self._resolution.derived.remarks if self._resolution.derived is not None else ()

    @property
    def own_remarks(self) -> tuple[str, ...]:
        """The remarks on the spec itself that an evaluation reports."""
        return (*self.mapping_remarks, *self.variable_remarks, *self.number_remarks)

    def __getstate__(self) -> dict[str, object]:
        # Resolved parts are left out: they can be resolved again, and their scopes cannot be pickled.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __repr__(self) -> str:
        parts = [f"files={list(self.files)}"] if self.files else []
        parts += ["teaal"] if self.raw_teaal is not None else []
        parts += [n for n in ("workload", "arch", "mapping") if getattr(self, f"raw_{n}") is not None]
        shown = ", ".join(f"{name}={value}" for name, value in self.symbols.items())
        return f"Spec({', '.join(parts)}{f', symbols: {shown}' if shown else ''})"

    def __str__(self) -> str:
        waits = "waits for the value of " + ", ".join(n for n, value in self.symbols.items() if value is None)
        parts = [repr(self)]
        if self.teaal is not None:
            parts += [str(self.teaal), *(f"remark: {r}" for r in self.remarks)]
        for name in ("workload", "arch", "mapping"):
            derived = name == "mapping" and self.raw_teaal is not None and self.mapping is not None
            if getattr(self, f"raw_{name}") is not None or derived:
                found = getattr(self._resolution, name)
                parts.append(f"{name}: {waits}" if found is None else str(getattr(self, name)))
        return "\n".join(parts)

    @property
    def workload(self) -> Cascade:
        """The resolved Einsums. Raises SpecError if there are none, or if symbols lack values."""
        if self._resolution.workload is None:
            raise SpecError(self._lacking("workload", self.raw_workload is None))
        return self._resolution.workload.cascade

    @property
    def arch(self) -> Hierarchy:
        """The resolved hierarchy. Raises SpecError if there is none, or if symbols lack values."""
        if self._resolution.arch is None:
            raise SpecError(self._lacking("arch", self.raw_arch is None))
        return self._resolution.arch

    @cached_property
    def mapping(self) -> LoopTree | None:
        """The LoopTree with the values of symbols filled in; symbols without a value keep their name."""
        result = self._resolution.mapping
        if result is None or self._resolution.workload is None:
            return result.tree if result else None
        return replace(result.tree, scheduler=Scheduler(self._resolution.workload.cascade, schedule_relation))

    @property
    def resolved(self) -> tuple[Cascade | None, Hierarchy | None, LoopTree | None]:
        """Workload, architecture and mapping; None for a part that is absent or has symbols without
        values.
        """
        result = self._resolution
        return (result.workload.cascade if result.workload else None), result.arch, self.mapping

    @property
    def names(self) -> dict[str, str]:
        """The names of the parts that have one."""
        raws = self.raw_workload, self.raw_arch, self.raw_mapping
        workload, arch, mapping = (r.name if r is not None else "" for r in raws)
        result = {"workload": workload or self.library[0], "architecture": arch or self.library[1]}
        return {part: n for part, n in {**result, "mapping": self.chosen or mapping}.items() if n}

    def used_symbols(self) -> dict[str, Value | str]:
        """Symbols that workload and architecture use, as written or as bound; tile sizes are not included."""
        return naming.used_symbols({**self.declared, **self.given}, self._words())

    def _words(self) -> set[str]:
        return naming.words_of(s.model_dump() if s else None for s in (self.raw_workload, self.raw_arch))

    def no_mapping(self) -> PolymodelError:
        """The error of a call that needs a mapping; it lists the library's mappings, if there are any.

        For a TeAAL spec without one it gives the reason: Refused for partitionings that depend on the data.
        """
        derived = self._resolution.derived
        if derived is not None and derived.error is not None:
            return derived.error
        if isinstance(self.locator, Without):
            what = "the mapping of the whole workload cannot be used here: it fuses these Einsums with others"
            remedy = "read their rows in the report of the whole workload, search a mapping for them "
            remedy += "(`polymodel explore ... --einsum NAME`), or write one"
            return SpecError([Diagnostic(what, remedy, "mapping", code="invalid-structure")])
        workload, arch = self.library
        remedy = "add `mapping:`, load one beside it"
        search = "or search one: `polymodel explore`, in Python pm.explore"
        if workload and arch and (known := library.variants(workload, arch)):
            remedy = f"load one of {', '.join(f'{workload}/{v}' for v in known)}, write your own"
        what = "the spec has no mapping"
        return SpecError([Diagnostic(what, f"{remedy}, {search}", "mapping", code="missing-section")])

    @cached_property
    def template(self) -> LoopTree | None:
        """The LoopTree as written: tile sizes that are symbols keep their names."""
        derived = self._resolution.derived if self.raw_mapping is None else None
        if isinstance(self.raw_mapping, LoopTree) or self.raw_mapping is None:
            return self.raw_mapping if derived is None else derived.template
        result = resolve_mapping(self.raw_mapping, Faults(self.locator))
        return result.tree if result else None

    def bind(self, **symbols: Value) -> Spec:
        """The same spec with values for symbols. Raises SpecError for unknown names and bad values."""
        naming.check_symbols(symbols, self.symbols)
        return replace(self, given={**self.given, **plainly(symbols)})._checked()

    def with_mapping(self, mapping: LoopTree | MappingSpec | str | Path) -> Spec:
        """The same spec under another mapping: a LoopTree, a file, or the name of a library mapping."""
        if isinstance(mapping, (LoopTree, MappingSpec)):
            locator: Locator = Without(self.locator, "mapping")
            given = {} if isinstance(mapping, LoopTree) else mapping.sparse
            result = replace(self, raw_mapping=mapping, locator=locator, chosen="")
            return result.with_sparse(given)._checked()
        document = Document()
        path = self._mapping_file(str(mapping), document)
        if path is not None:
            model = library.variables(self.library[0]) if self.library[0] else {}
            read_file(path, document, {**model, **self.variables})
            if "mapping" not in document.sections and not len(document.faults):
                document.faults.note(naming.without_mapping(document, str(path)))
        document.faults.raise_if_any()
        written = document.sections["mapping"]
        assert isinstance(written, MappingSpec)
        merged = {**self.declared, **document.symbols, **document.bound}
        locator = Joined(document.faults.locator, self.locator)
        called = str(mapping)
        result = replace(self, raw_mapping=written, declared=merged, locator=locator, chosen=called)
        return result.with_sparse(written.sparse)._checked()

    def with_sparse(self, sections: Mapping[str, SparseSection]) -> Spec:
        """The same spec with other sections `sparse` of some components, which are written with its mappings.
        They are not checked yet."""
        arch, known = self.raw_arch, {**self.sparse_sections, **sections}
        arch = arch and arch.with_sparse(sections)
        return replace(self, raw_arch=arch, sparse_sections=known) if sections else self

    def only(self, *einsums: str) -> Spec:
        """The spec with some of its Einsums, in their order: `spec.only("QK", "AV")`.

        Tensors written by the other Einsums become inputs; tensors that are no longer used are empty sets
        where the architecture and the constraints name them. The nodes of these Einsums stay in the mapping
        if they are separate; a mapping that fuses them with others is dropped. Raises SpecError for unknown
        names.
        """
        workload = self.raw_workload
        known = [e.name for e in workload.einsums] if workload is not None else []
        unknown = [e for e in einsums if e not in known]
        if workload is None or unknown or not einsums:
            near = {e: suggestion(str(e), known, "Einsums") for e in unknown}
            faults = [
                Diagnostic(f"there is no Einsum {e!r}", remedy, code="unknown-name")
                for e, remedy in near.items()
            ]
            raise SpecError(
                faults
                or [Diagnostic("no Einsum is named", 'write spec.only("QK", "AV")', code="missing-argument")]
            )
        renames = self.raw_renames
        if renames is not None:
            named = tuple(r for r in renames.einsums if r.name in (*einsums, "default"))
            renames = renames.model_copy(update={"einsums": named})
        part = _narrowed(workload, einsums, self._resolution.workload)
        result = replace(
            self,
            raw_workload=part,
            raw_renames=self._emptied(renames, workload.tensors - part.tensors),
            raw_explore=self.raw_explore and self.raw_explore.of_part(part, workload),
            raw_mapping=None,
            locator=self.locator if self.raw_mapping is None else Without(self.locator, "mapping"),
            chosen="",
        )
        if isinstance(self.raw_mapping, MappingSpec):
            mapped = replace(result, raw_mapping=self.raw_mapping.of_part(part, workload))
            if not mapped._resolution.diagnostics:
                return mapped
        return result._checked()

    def _emptied(self, renames: Renames | None, gone: Collection[str]) -> Renames | None:
        """Renames that make removed tensors the empty set where the architecture names them."""
        written = "" if self.raw_arch is None else str(self.raw_arch.model_dump())
        named = sorted(set(re.findall(r"[A-Za-z_]\w*", written)) & set(gone))
        if not named:
            return renames
        empty = EinsumRenames(name="default", tensor_accesses=dict.fromkeys(named, "Nothing"))
        return Renames(einsums=(empty, *(renames.einsums if renames is not None else ())))

    def check(self) -> tuple[Diagnostic, ...]:
        """Every fault that prevents an evaluation or exploration of this spec, including violated dependences
        of its mapping; empty if there is none. Raises Refused where these cannot be decided."""
        return self._resolution.diagnostics or self._illegal

    @cached_property
    def _resolution(self) -> Resolution:
        return resolve(self)

    @cached_property
    def _illegal(self) -> tuple[Diagnostic, ...]:
        """The faults that the legality check of mappings finds in a spec whose parts are valid."""
        if self.mapping is None or self._resolution.workload is None or self._resolution.arch is None:
            return ()
        return faults_of(Problem(self.workload, self.arch, self.mapping))

    def _checked(self) -> Spec:
        """This spec; raises SpecError unless its only faults are symbols without a value."""
        spec = self._strided()
        faults = [d for d in spec._resolution.diagnostics if d.code != UNBOUND]
        if faults:
            raise SpecError(in_reading_order(faults))
        return spec

    def _strided(self) -> Spec:
        """This spec; for a TeAAL spec whose strides are symbols, with the workload for their values."""
        if self.raw_teaal is None:
            return self
        from polymodel.spec.teaal.convert import bound, strides_of, workload_of

        if not strides_of(self.raw_teaal):
            return self
        result = workload_of(bound(self.raw_teaal, self.symbols, Faults()))
        return replace(self, raw_workload=None if isinstance(result, str) else result)

    def _lacking(self, section: str, missing: bool) -> list[Diagnostic]:
        if section == "workload" and self._resolution.refused:
            return list(self._resolution.refused)
        if missing:
            return [
                Diagnostic(
                    f"the spec has no `{section}:`",
                    f"add `{section}:`, or load one beside it",
                    section,
                    code="missing-section",
                )
            ]
        return list(self._resolution.diagnostics)

    def _mapping_file(self, text: str, document: Document) -> Path | None:
        workload, arch = self.library
        if "\n" in text:
            remedy = "write it to a file, or give the LoopTree"
            document.faults.note(Diagnostic("YAML text is not a mapping", remedy, code="wrong-type"))
            return None
        if library.is_name(text) and not isfile(text):
            head, _, tail = text.partition("/")
            variant = tail or head
            owner = head if tail else workload
            if owner and arch:
                path = library.mapping_path(owner, arch, variant)
                known = library.variants(owner, arch)
                if path is None:
                    what = f"there is no mapping {variant} of {owner} for {arch}"
                    document.faults.note(
                        Diagnostic(what, suggestion(variant, known, "mappings"), code="unknown-name")
                    )
                return path
            remedy = "name a file, or load workload and architecture by library name"
            document.faults.note(Diagnostic(f"unknown mapping {text}", remedy, code="unknown-name"))
            return None
        return existing(text, document)


def _narrowed(workload: Workload, einsums: Sequence[str], resolved: Resolved | None) -> Workload:
    """Some Einsums of a workload, with the entries for their ranks and tensors only. `resolved`: the whole
    workload, where symbols have values."""
    kept = tuple(e for e in workload.einsums if e.name in einsums)
    accesses = [a for e in kept for a in e.tensor_accesses]
    tensors = {a.name for a in accesses}
    gone = workload.tensors - tensors
    shapes = [a.projection for a in accesses]
    # A list contains rank variables; their ranks are the upper-cased names.
    ranks = {str(r) if isinstance(s, Mapping) else str(r).upper() for s in shapes for r in s}
    words = naming.words_of(shapes)
    return workload.model_copy(
        update={
            "einsums": kept,
            "rank_sizes": {r: n for r, n in workload.rank_sizes.items() if r in ranks},
            "iteration_space_shape": {v: t for v, t in workload.iteration_space_shape.items() if v in words},
            "bits_per_value": {
                without_tensors(s, gone): b for s, b in workload.bits_per_value.items() if s not in gone
            },
            "persistent_tensors": tuple(
                without_tensors(t, gone) for t in workload.persistent_tensors if t not in gone
            ),
            "densities": {t: d for t, d in workload.densities.items() if t in tensors},
            "default": {t: d for t, d in workload.default.items() if t in tensors},
            "generational": tuple(
                r for r in workload.generational if r in ranks and _carries(resolved, einsums, rank=r)
            ),
            **{
                section: {t: v for t, v in said.items() if t in tensors and _carries(resolved, einsums, t)}
                for section, said in (("init", workload.init), ("boundary", workload.boundary))
            },
        }
    )


def _carries(resolved: Resolved | None, einsums: Sequence[str], tensor: str = "", rank: str = "") -> bool:
    """True if some of these Einsums read at an earlier index what one of them writes: of this tensor, along
    this rank, or of any."""
    if resolved is None:
        return True
    kept = [resolved.cascade[name] for name in einsums]
    for name, ranks in resolved.cascade.generational:
        for along in ranks if tensor in ("", name) else ():
            accesses = [
                a for e in kept for a in e.accesses_of(name) if along in a.ranks and rank in ("", along)
            ]
            at = [(a.output, a.projection[a.ranks.index(along)].constant) for a in accesses]
            last = max((where for output, where in at if output), default=None)
            if last is not None and any(where < last for output, where in at if not output):
                return True
    return False


def named_files(spec: Spec) -> dict[str, Path]:
    """Files that a spec refers to, by the name it uses: data of tensors, tables of energies. A missing file
    maps to its former path."""
    result: dict[str, Path] = {}
    if spec.raw_workload is not None:
        accesses = [a for e in spec.raw_workload.einsums for a in getattr(e, "tensor_accesses", ())]
        for written in (*spec.raw_workload.densities.values(), *(a.density for a in accesses)):
            if isinstance(written, dict) and isinstance(written.get("actual"), str):
                result[written["actual"]] = Path(spec.data_folder) / written["actual"]
    for node in spec.raw_arch.nodes if spec.raw_arch is not None else ():
        if node.energy_model is not None and node.energy_model.file:
            result[node.energy_model.file] = Path(spec.folder) / node.energy_model.file
    return result


@contextmanager
def protected_files(*specs: Spec | None) -> Iterator[None]:
    """Inside the block, the files of these specs cannot be overwritten."""
    with keeping(files_of(*specs)):
        yield


def files_of(*specs: Spec | None) -> tuple[str, ...]:
    """The files that these specs were read from or refer to."""
    known = [s for s in specs if s is not None]
    named = (f for s in known for f in named_files(s).values())
    return (*(f for s in known for f in s.files), *map(str, named))


UNBOUND = "unbound-symbol"


@dataclass(frozen=True)
class Resolution:
    """The resolved parts; None for a part that is absent or faulty."""

    workload: Resolved | None
    arch: Hierarchy | None
    mapping: ResolvedMapping | None
    diagnostics: tuple[Diagnostic, ...]
    derived: Derived | None = None
    refused: tuple[Diagnostic, ...] = ()


def resolve(spec: Spec) -> Resolution:
    """Resolve all parts of a spec, with every fault that can be found without counting."""
    faults = Faults(spec.locator)
    values = naming.symbol_values(spec.declared, spec.given, faults)
    symbols = {**spec.symbols, **values}
    workload = arch = mapping = derived = None
    refused: tuple[Diagnostic, ...] = ()
    if spec.raw_workload is not None:
        own = Faults(spec.locator)
        workload = resolve_workload(spec.raw_workload, spec.raw_renames, symbols, own)
        # A TeAAL spec without a dense count is not a fault: it runs on data.
        waits = [d for d in own.found if d.code == UNBOUND]
        refused = tuple(own.found) if spec.raw_teaal is not None and not waits else ()
        faults.extend(waits if spec.raw_teaal is not None else own.found)
    elif spec.raw_teaal is not None:
        from polymodel.mapping.teaal import EXECUTE
        from polymodel.spec.teaal.convert import workload_of

        refused = (Diagnostic(str(workload_of(spec.raw_teaal)), EXECUTE, code="unsupported-operation"),)
    raws, chosen = (spec.raw_workload, spec.raw_arch), spec.sparse_sections
    if raws[1] is not None:
        scopes = workload.scopes if workload else ()
        arch = resolve_arch(raws[1], scopes, symbols, faults, spec.folder, chosen)
        if workload is None and raws[0] is not None:
            arch = None  # its set expressions need the workload; its numbers are checked
    if isinstance(spec.raw_mapping, LoopTree):
        mapping = ResolvedMapping(spec.raw_mapping)
    elif spec.raw_mapping is not None:
        mapping = resolve_mapping(spec.raw_mapping, faults)
    if mapping is None and spec.raw_teaal is not None:
        from polymodel.mapping.teaal import derive
        from polymodel.spec.teaal.convert import arch_of

        cascade = workload.cascade if workload else None
        its_own = spec.raw_arch is not None and spec.raw_arch == arch_of(spec.raw_teaal)[0]
        derived = derive(spec.raw_teaal, symbols, cascade, arch, its_own, refused, faults)
        if derived.tree is not None:
            mapping = ResolvedMapping(derived.tree)
            check_bound(mapping, faults)
    elif mapping is not None:
        mapping = bind_tree(mapping, symbols, faults)
        check_bound(mapping, faults)
        if workload is not None and arch is not None:
            check_mapping(mapping, workload.cascade, arch, faults)
    if workload is not None and raws[0] is not None and mentions_sparsity(*raws):
        from polymodel.sparse.check import check_sparse

        check_sparse(raws[0], workload.cascade, raws[1], arch, spec.data_folder, faults, chosen)
    if spec.raw_arch is not None and any(getattr(n, "data_tiles", None) for n in spec.raw_arch.nodes):
        from polymodel.tiling.levels.checked import check_data_tiles

        check_data_tiles(spec.raw_arch, arch, workload.cascade if workload else None, faults)
    check_section(spec.raw_explore, symbols, workload, spec.raw_arch, arch, faults)
    return Resolution(workload, arch, mapping, in_reading_order(faults.found), derived, refused)
