"""The `bindings` section (older files: `binding`): the parts of each Einsum that each component executes or
stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polymodel.spec.base import shown
from polymodel.spec.faults import Path, suggestion
from polymodel.spec.teaal.einsum_section import EinsumSection
from polymodel.spec.teaal.formats import stored_ranks
from polymodel.spec.teaal.mapping_section import MappingSection
from polymodel.spec.teaal.records import (
    MEMORIES,
    Binding,
    EinsumBindings,
    Expression,
    HardwareComponent,
    NamedArchitecture,
    TensorFormat,
)
from polymodel.spec.teaal.walk import TreeWalk

_MEMORY = ("tensor", "rank", "type", "format", "evict-on", "style")
KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(MEMORIES, _MEMORY),
    "Compute": ("op",),
    "Intersector": ("rank", "leader"),
    "Merger": ("tensor", "init-ranks", "final-ranks"),
    "Sequencer": ("rank",),
}
OPTIONS = {"type": ("coord", "payload", "elem"), "style": ("lazy", "eager"), "op": ("mul", "add")}
_EXAMPLE = "bindings: {Z: [{config: Accelerator}, {component: FPMul, bindings: [{op: mul}]}]}"


@dataclass(frozen=True)
class BindingNames:
    """The names that bindings may use."""

    einsums: EinsumSection
    mapping: MappingSection
    formats: tuple[TensorFormat, ...]
    configurations: tuple[NamedArchitecture, ...]


def read_bindings(
    data: object, section: str, known: BindingNames, walk: TreeWalk
) -> tuple[EinsumBindings, ...]:
    """Read and check the section, whose key is `section`; all faults are collected."""
    path: Path = (section,)
    expressions = {e.name: e for e in known.einsums.expressions}
    if data is not None and not known.configurations:
        message = "there is no architecture whose components could be bound"
        walk.add(path, message, "add `architecture:`", key=True, code="missing-section")
        return ()
    if isinstance(data, (list, tuple)):
        return _older(list(data), path, known, expressions, walk)
    result = []
    for name, items in walk.mapping(data, path, _EXAMPLE).items():
        at = (*path, name)
        if name not in expressions:
            walk.unknown(at, "Einsum", name, expressions)
            continue
        listed = walk.items(items, at, "[{config: Accelerator}, {component: FPMul, bindings: [{op: mul}]}]")
        result.append(_einsum(expressions[name], listed, at, known, walk))
    return tuple(result)


def _einsum(
    expression: Expression, listed: list[object], path: Path, known: BindingNames, walk: TreeWalk
) -> EinsumBindings:
    names = [c.name for c in known.configurations]
    config, prefix = "", ""
    entries: list[tuple[Path, dict[str, object]]] = []
    for i, item in enumerate(listed):
        at = (*path, i)
        given = walk.mapping(item, at, "{component: FPMul, bindings: [{op: mul}]}")
        if "component" not in given and {"config", "prefix"} & given.keys():
            walk.keys(given, at, ("config", "prefix"))
            prefix = str(given.get("prefix", prefix))
            if "config" in given and given["config"] not in names:
                near = suggestion(str(given["config"]), names, "architectures")
                what = f"unknown architecture {shown(given['config'])}"
                walk.add((*at, "config"), what, near, code="unknown-name")
            elif config and "config" in given:
                fault = f"the config of {expression.name} is given twice"
                walk.add((*at, "config"), fault, "keep one", code="duplicate-name")
            config = str(given.get("config", config))
        else:
            walk.keys(given, at, ("component", "bindings"))
            entries.append((at, given))
    if not config and len(names) == 1:
        config = names[0]
    if config not in names:
        if not config:
            message = f"{expression.name} says no architecture"
            walk.add(path, message, f"add `- config: {names[0]}`", code="missing-key")
        return EinsumBindings(expression.name, config, prefix)
    chosen = next(c for c in known.configurations if c.name == config)
    bindings: list[Binding] = []
    for at, given in entries:
        component = _component_of(given.get("component"), (*at, "component"), at, chosen, walk)
        if component is not None:
            bindings += _to(component, given.get("bindings"), (*at, "bindings"), expression, known, walk)
    return EinsumBindings(expression.name, config, prefix, tuple(bindings))


def _component_of(
    name: object, path: Path, above: Path, configuration: NamedArchitecture, walk: TreeWalk
) -> HardwareComponent | None:
    if name is None:
        walk.add(above, "key `component` is missing", "add `component:`", code="missing-key")
        return None
    known = {c.name: c for c in configuration.components}
    if not isinstance(name, str) or name not in known:
        near = suggestion(str(name), known, f"components of {configuration.name}")
        walk.add(path, f"unknown component {shown(name)}", near, code="unknown-name")
        return None
    return known[name]


def _to(
    component: HardwareComponent,
    data: object,
    path: Path,
    expression: Expression,
    known: BindingNames,
    walk: TreeWalk,
) -> list[Binding]:
    """The bindings of one Einsum to one component."""
    result: list[Binding] = []
    for i, item in enumerate(walk.items(data, path, "[{tensor: A, rank: K, type: elem, format: default}]")):
        at = (*path, i)
        binding = _one(component, item, at, expression, known, True, walk)
        if binding is None:
            continue
        if component.kind in MEMORIES and any(_place(b) == _place(binding) for b in result):
            message = f"{binding.tensor} {binding.rank} {binding.type} is bound twice"
            walk.add(at, message, "keep one", code="duplicate-name")
        result.append(binding)
    return result


def _place(binding: Binding) -> tuple[str, str, str, str]:
    return binding.tensor, binding.rank, binding.type, binding.format


def _one(
    component: HardwareComponent,
    data: object,
    path: Path,
    expression: Expression,
    known: BindingNames,
    strict: bool,
    walk: TreeWalk,
) -> Binding | None:
    """One binding; older files (not `strict`) may leave more of its keys out."""
    before = len(walk.faults)
    given = walk.mapping(data, path, "{tensor: A, rank: K, type: elem, format: default}")
    hyphened = {"init_ranks": "init-ranks", "final_ranks": "final-ranks"}
    plain = {hyphened.get(k, k): v for k, v in given.items()}
    walk.keys(plain, path, (*KEYS[component.kind], *(() if strict else ("einsum", "swap_depth", "ranks"))))
    _check_words(plain, path, component, strict, walk)
    _check_names(plain, path, component, expression, known, walk)
    return _record(component, plain) if len(walk.faults) == before else None


def _record(component: HardwareComponent, given: Mapping[str, object]) -> Binding:
    kind, style, op = (str(given.get(k, "")) for k in ("type", "style", "op"))
    return Binding(
        component.name,
        tensor=str(given.get("tensor", "")),
        rank=str(given.get("rank", "")),
        type="coord" if kind == "coord" else "payload" if kind == "payload" else "elem" if kind else "",
        format=str(given.get("format", "")),
        evict_on=str(given.get("evict-on", "")),
        style="eager" if style == "eager" else "lazy",
        op="mul" if op == "mul" else "add" if op else "",
        leader=str(given.get("leader", "")),
        init_ranks=_listed(given.get("init-ranks")),
        final_ranks=_listed(given.get("final-ranks")),
    )


def _listed(value: object) -> tuple[str, ...]:
    return tuple(str(v) for v in value) if isinstance(value, (list, tuple)) else ()


def _check_words(
    given: dict[str, object], path: Path, component: HardwareComponent, strict: bool, walk: TreeWalk
) -> None:
    """Checks required keys, and keys with a fixed set of values."""
    needed: tuple[str, ...]
    needed = {"Compute": ("op",), "Intersector": ("rank",), "Sequencer": ("rank",)}.get(
        component.kind, ("tensor",)
    )
    if component.kind in MEMORIES and strict:
        needed = ("tensor", "rank", "type", "format")
        needed += ("evict-on",) if component.kind == "Buffet" else ()
    elif component.kind == "Merger" and strict:
        needed = ("tensor", "init-ranks", "final-ranks")
    if component.type == "leader-follower":
        needed += ("leader",)
    for key in needed:
        if key not in given:
            what = f"the binding to {component.name} has no {key}"
            walk.add(path, what, f"add `{key}:`", code="missing-key")
    for key, options in OPTIONS.items():
        if key in given and given[key] not in options:
            near = suggestion(str(given[key]), options, "write one of")
            fault = f"{shown(given[key])} is not a valid {key} of a binding"
            walk.add((*path, key), fault, near, code="unknown-choice")
    op = given.get("op")
    if op in OPTIONS["op"] and component.type and op != component.type:
        message = f"{component.name} executes {component.type}, not {op}"
        walk.add((*path, "op"), message, f"write {component.type}", code="inconsistent-values")


def _check_names(
    given: dict[str, object],
    path: Path,
    component: HardwareComponent,
    expression: Expression,
    known: BindingNames,
    walk: TreeWalk,
) -> None:
    loops = next(m.loop_order for m in known.mapping.mappings if m.einsum == expression.name)
    tensors = tuple(dict.fromkeys((expression.name, *(o.tensor for o in expression.operands))))
    tensor = given.get("tensor")
    if "tensor" in given and tensor not in tensors:
        near = suggestion(str(tensor), tensors, f"tensors of Einsum {expression.name}")
        walk.add((*path, "tensor"), f"unknown tensor {shown(tensor)}", near, code="unknown-name")
        return
    if "rank" in given:
        ranks = loops if tensor is None else ("root", *_ranks_of(str(tensor), given.get("format"), known))
        if given["rank"] not in ranks:
            whose = f" of {tensor}" if tensor else ""
            near = suggestion(str(given["rank"]), ranks, "ranks")
            what = f"unknown rank {shown(given['rank'])}{whose}"
            walk.add((*path, "rank"), what, near, code="unknown-name")
    if "format" in given and isinstance(tensor, str):
        formats = [f.configuration for f in known.formats if f.tensor == tensor]
        if given["format"] not in formats:
            near = suggestion(str(given["format"]), formats, f"formats of {tensor}")
            fault = f"{tensor} has no format {shown(given['format'])}"
            walk.add((*path, "format"), fault, near, code="unknown-name")
    if "evict-on" in given and given["evict-on"] not in ("root", *loops):
        near = suggestion(str(given["evict-on"]), ("root", *loops), "loops")
        walk.add((*path, "evict-on"), f"unknown rank {shown(given['evict-on'])}", near, code="unknown-name")
    operands = [o.tensor for o in expression.operands]
    if "leader" in given and given["leader"] not in operands:
        near = suggestion(str(given["leader"]), operands, "operands")
        message = f"{shown(given['leader'])} is not an operand of {expression.name}"
        walk.add((*path, "leader"), message, near, code="unknown-name")
    if "init-ranks" in given and "final-ranks" in given and isinstance(tensor, str):
        _check_merge(given, path, tensor, known, walk)


def _check_merge(
    given: dict[str, object], path: Path, tensor: str, known: BindingNames, walk: TreeWalk
) -> None:
    before = len(walk.faults)
    listed = [walk.names(given[k], (*path, k), "rank", "[M, K, N]") for k in ("init-ranks", "final-ranks")]
    ranks = stored_ranks(tensor, known.einsums, known.mapping)
    for key, found in zip(("init-ranks", "final-ranks"), listed, strict=True):
        for i, rank in enumerate(found):
            if rank not in ranks:
                near = suggestion(rank, ranks, f"ranks of {tensor}")
                walk.add((*path, key, i), f"unknown rank {rank} of {tensor}", near, code="unknown-name")
    if len(walk.faults) == before and sorted(listed[0]) != sorted(listed[1]):
        message = "they are not the initial ranks in another order"
        walk.add((*path, "final-ranks"), message, "list the same ranks", code="shape-mismatch")


def _ranks_of(tensor: str, configuration: object, known: BindingNames) -> tuple[str, ...]:
    """The ranks of a stored tensor: those of its format, else all names that its ranks ever have."""
    for result in known.formats:
        if (result.tensor, result.configuration) == (tensor, configuration):
            return result.rank_order
    return stored_ranks(tensor, known.einsums, known.mapping)


def _older(
    data: list[object], path: Path, known: BindingNames, expressions: Mapping[str, Expression], walk: TreeWalk
) -> tuple[EinsumBindings, ...]:
    """A list of components; each binding names its Einsum, or holds for every one with the tensor."""
    configuration = known.configurations[0]
    result: dict[str, list[Binding]] = {name: [] for name in expressions}
    for i, item in enumerate(data):
        at = (*path, i)
        given = walk.mapping(item, at, "{name: FPMul, bindings: [{einsum: Z, op: mul}]}")
        walk.keys(given, at, ("name", "bindings"))
        component = _component_of(given.get("name"), (*at, "name"), at, configuration, walk)
        if component is None:
            continue
        for j, entry in enumerate(
            walk.items(given.get("bindings"), (*at, "bindings"), "[{einsum: Z, op: mul}]")
        ):
            here = (*at, "bindings", j)
            named = walk.mapping(entry, here, "{einsum: Z, op: mul}").get("einsum")
            if named is not None and not (isinstance(named, str) and named in expressions):
                near = suggestion(str(named), expressions, "Einsums")
                walk.add((*here, "einsum"), f"unknown Einsum {shown(named)}", near, code="unknown-name")
                continue
            for name, expression in expressions.items():
                if named in (None, name) and _uses(entry, expression):
                    binding = _one(component, entry, here, expression, known, False, walk)
                    result[name] += [binding] if binding is not None else []
    return tuple(EinsumBindings(n, configuration.name, "", tuple(b)) for n, b in result.items())


def _uses(entry: object, expression: Expression) -> bool:
    tensor = entry.get("tensor") if isinstance(entry, dict) else None
    return tensor is None or tensor in (expression.name, *(o.tensor for o in expression.operands))
