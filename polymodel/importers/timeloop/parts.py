"""Read Timeloop's architectures as parts, outermost first, in either form of the file, with their
constraints.

Constraints in a section of their own apply as if they were written at the level that they name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from polymodel.importers.expressions import evaluate
from polymodel.importers.timeloop.reading import (
    CYCLE,
    Fields,
    TimeloopReading,
    cycle_of,
    exact,
    name_and_count,
)
from polymodel.spec.faults import TextFault, YamlNode, suggestion
from polymodel.spec.numbers import Value

Kind = Literal["memory", "compute", "container"]
_STORES = re.compile(r"dram|sram|regfile|reg_file|register|buffer|storage|scratchpad|cache|memory|fifo|latch")
_COMPUTES = re.compile(r"mac|compute|alu|multiplier|adder")
_SIZES = ("depth", "memory_depth", "data_storage_depth", "entries", "sizekb")
WORD = ("datawidth", "word_bits", "word_width", "wordbits")
WIDTH = ("width", "memory_width", "data_storage_width")
BLOCK = ("block_size", "n_words", "blocksize")
CLUSTER = ("cluster_size", "clustersize")


@dataclass(frozen=True)
class Dataspace:
    """A `dataspace:` constraint: what must be kept, and what must not."""

    keep: frozenset[str] = frozenset()
    bypass: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LoopConstraint:
    """A constraint on the loops of a level, or on those over its instances (`spatial`)."""

    spatial: bool
    node: YamlNode
    path: str


@dataclass(frozen=True)
class TimeloopLevel:
    """A level, or a container with fanout.

    `mesh`: instances in one instance of the enclosing part, along X and Y; `shaped`: the file specifies the
    two dimensions. `entries`: words of one instance, None for no bound, 0 for a fanout that is written as a
    storage. `words`: words per access; `cluster`: instances that one access serves. `read`, `write`: words
    per cycle, None for no bound. `metadata`: additional bits in which metadata are stored. `path`: its dotted
    path, as in an energy table. `least`: path and node of constraints on the utilisation of all instances.
    """

    name: str
    kind: Kind
    node: YamlNode
    mesh: tuple[int, int] = (1, 1)
    shaped: bool = True
    own_mesh: bool = False
    bits: int | None = None
    entries: Fraction | None = None
    words: Fraction = Fraction(1)
    cluster: int = 1
    read: Value | None = None
    write: Value | None = None
    shared_port: bool = False
    cycle: Value | None = None
    held: Dataspace = field(default_factory=Dataspace)
    unicast: frozenset[str] = frozenset()
    asked: tuple[LoopConstraint, ...] = ()
    least: tuple[tuple[str, YamlNode], ...] = ()
    sparse: YamlNode | None = None
    metadata: int = 0

    @property
    def instances(self) -> int:
        return self.mesh[0] * self.mesh[1]


def kind_of(word: str, attributes: Fields | None) -> Kind | None:
    """Return the kind of a class of components; None for classes that only estimators know."""
    lower = word.lower()
    if _STORES.search(lower):
        return "memory"
    if _COMPUTES.search(lower):
        return "compute"
    if attributes is not None and any(key in attributes for key in _SIZES):
        return "memory"
    return None


@dataclass(frozen=True)
class Sizes:
    """Sizes of one instance of a memory. `entries`: its words, None for no bound; `words`: those of one
    access.

    `cluster`: instances that one physical memory serves; one of its accesses moves `words` words for each.
    """

    bits: int | None = None
    entries: Fraction | None = None
    words: Fraction = Fraction(1)
    cluster: int = 1
    metadata: int = 0


def memory_sizes(reading: TimeloopReading, fields: Fields | None, backing: bool) -> Sizes:
    """Return the sizes that the attributes specify; a row of the memory is `words` words for each of its
    instances."""
    if fields is None:
        return Sizes()
    bits = fields.count(*WORD)
    words, cluster = _row(reading, fields, bits)
    depth = fields.amount("depth", "memory_depth", "data_storage_depth", least=0)
    entries = fields.amount("entries", least=0)
    kilobytes = fields.amount("sizekb")
    word = bits or 8
    width = fields.amount(*WIDTH)
    result: Fraction | None = None
    if entries is not None:
        result = exact(entries)
    elif depth is not None and width is not None:
        result = exact(depth) * exact(width) / word / cluster
    elif depth is not None:
        result = exact(depth) * words
    elif kilobytes is not None:
        result = exact(kilobytes) * 8192 / word
    times = fields.amount("multiple_buffering")
    if result is not None and times is not None and times > 1:
        what = f"of its words 1/{times} are counted as capacity, as in Timeloop (multiple_buffering)"
        reading.note(fields.node, what, "", fields.path)
        result = result / exact(times)
    lines, wide = (fields.amount(f"metadata_storage_{k}", least=0) for k in ("depth", "width"))
    metadata = int(exact(lines or 0) * exact(wide or 0) / cluster)
    if metadata and not backing:
        what = f"{metadata} bits for metadata are part of its size: data and metadata share it here"
        reading.note(fields.node, what, "", fields.path)
    return Sizes(bits, None if backing and entries is None else result, words, cluster, metadata)


def _row(reading: TimeloopReading, fields: Fields, bits: int | None) -> tuple[Fraction, int]:
    """Return (words of one access of one instance, instances that an access serves).

    A row has width = word bits x block size x cluster size; missing factors follow from the others, and a
    cluster is of one instance if neither block size nor cluster size is given (Timeloop,
    BufferLevel::ParseSpecs).
    """
    width, block, cluster = fields.amount(*WIDTH), fields.amount(*BLOCK), fields.count(*CLUSTER)
    given = exact(block) if block is not None and block >= 1 else None
    if width is None or not width or bits is None:
        return given or Fraction(1), cluster or 1
    row = exact(width) / bits
    if given is not None and cluster is None:
        times = row / given
        cluster = int(times) if times >= 1 and times.denominator == 1 else None
    if given is not None and (cluster is None or given * cluster != row):
        of_all = "" if cluster is None else f" times {cluster} instances of a cluster"
        what = f"a row of {width} bits is not {block} words of {bits} bits{of_all}"
        remedy = "width = datawidth * block_size * cluster_size: correct one of them"
        reading.fault(fields.node, what, remedy, fields.path, code="inconsistent-values")
    return given or max(row / (cluster or 1), Fraction(1)), cluster or 1


def bandwidths(fields: Fields | None) -> tuple[Value | None, Value | None, bool]:
    """Return (words read, words written per cycle and instance, whether they share a port)."""
    if fields is None:
        return None, None, False
    both = fields.amount("shared_bandwidth", "bandwidth")
    read, write = fields.amount("read_bandwidth"), fields.amount("write_bandwidth")
    if both is not None and read is None and write is None:
        return both, both, True
    return read, write, False


def scope_of(reading: TimeloopReading, fields: Fields | None, outer: Mapping[str, Value]) -> dict[str, Value]:
    """Return the numbers that expressions in these attributes may use: variables, outer attributes, and their
    own."""
    result = {**{k: v for k, v in reading.variables.items() if v is not None}, **outer}
    waiting = [e for e in (fields.node.entries or () if fields else ()) if e.value.kind == "scalar"]
    for _ in range(len(waiting)):
        rest = []
        for entry in waiting:
            value = quietly(reading, entry.value, result)
            if value is None:
                rest.append(entry)
            else:
                result[entry.key] = value
        if len(rest) == len(waiting):
            break
        waiting = rest
    for entry in fields.node.entries or () if fields else ():
        # A container's value applies to everything inside it, and is checked once.
        if entry.key == CYCLE and id(entry) not in reading.seen:
            cycle_of(reading, reading.take(entry), result, fields.below(CYCLE) if fields else "")
    return result


def quietly(reading: TimeloopReading, node: YamlNode, scope: Mapping[str, Value]) -> Value | None:
    """Return the value of an attribute if it can be evaluated to a number; many attributes are words."""
    value = node.scalar
    if value is None:
        return None
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, bool) else value
    try:
        return evaluate(reading.inlined(str(value)), scope)
    except TextFault:
        return None


ALL = "*"  # every data space


def dataspace_of(fields: Fields | None, tensors: Mapping[str, str]) -> Dataspace:
    """Return `keep:` and `bypass:` of a directive or a constraint, for known tensors; `*` stands for all that
    the other of the two does not name."""
    if fields is None:
        return Dataspace()
    alone = fields.words("keep_only")
    every = frozenset(tensors.values())
    written = (alone or fields.words("keep") or (), fields.words("bypass") or ())
    given = [{w for w, _ in words} for words in written]
    keep, bypass = (frozenset(tensors[w] for w in words if w in tensors) for words in given)
    if ALL in given[0]:
        keep = every - bypass
    elif ALL in given[1]:
        bypass = every - keep
    return Dataspace(keep, bypass if alone is None else every - keep)


SECTIONS = (
    "constraints", "architecture_constraints", "arch_constraints", "mapspace_constraints", "map_constraints",
    "extra_mapping_constraints",
)  # fmt: skip
_KINDS = ("dataspace", "datatype", "bypass", "bypassing", "storage")
_LOOPS = ("temporal", "spatial")
_LEAST = ("utilization", "utilisation", "parallelism")


def constrained(
    reading: TimeloopReading,
    sections: Mapping[str, YamlNode],
    parts: Sequence[TimeloopLevel],
    tensors: Mapping[str, str],
) -> tuple[TimeloopLevel, ...]:
    """Return the parts with the constraints that the sections contain: what they keep, and their loops."""
    result = {p.name: p for p in parts}
    for section in SECTIONS:
        node = sections.get(section)
        if node is None:
            continue
        items = node.elements
        if items is None:
            fields = Fields(reading, node, section)
            fields.ignore("version")
            items = fields.items("targets")
        for i, item in enumerate(items):
            target = Fields(reading, item, f"{section}[{i}]")
            kind = target.text("type").lower()
            name = called(parts, target.text("target", "name"))
            several = fanned(parts, name) if kind == "spatial" and name in result else ()
            part = several[0] if len(several) == 1 else None if kind == "spatial" else result.get(name)
            if kind not in (*_KINDS, *_LOOPS, *_LEAST) or part is None:
                continue
            inner = target.fields("constraints") or target
            if kind in _LEAST:
                least = (*result[part.name].least, (inner.path, inner.node))
                result[part.name] = replace(result[part.name], least=least)
                continue
            if kind in _LOOPS:
                more = LoopConstraint(kind == "spatial", inner.node, inner.path)
                result[part.name] = replace(result[part.name], asked=(*result[part.name].asked, more))
                continue
            part = result[part.name]
            report_unknown(reading, inner, tensors)
            held = dataspace_of(inner, tensors)
            both = Dataspace(part.held.keep | held.keep, part.held.bypass | held.bypass)
            result[part.name] = replace(part, held=both)
    return tuple(result.values())


def called(parts: Sequence[TimeloopLevel], text: str) -> str:
    """Return the name of the part that a target denotes; the mapper calls the fanout of container PE
    inter_PE_spatial."""
    name, _ = name_and_count(text)
    return name if any(p.name == name for p in parts) else re.sub(r"^inter_(\w+)_spatial$", r"\1", name)


def fanned(parts: Sequence[TimeloopLevel], name: str) -> tuple[TimeloopLevel, ...]:
    """Return the parts whose instances spatial loops of a target run over: the target, or the next parts
    inside it."""
    at = next(i for i, p in enumerate(parts) if p.name == name)
    here = parts[at]
    if here.own_mesh and here.instances > 1:
        return (here,)
    below: list[TimeloopLevel] = []
    for part in parts[at + 1 :]:
        below += [part] if part.instances > 1 else []
        if part.kind != "container":
            break
    return tuple(below)


def report_unknown(reading: TimeloopReading, fields: Fields, tensors: Mapping[str, str]) -> None:
    """Report names that are kept or bypassed but are not data spaces of the problem as left out."""
    for node in (*fields.items("keep", "keep_only"), *fields.items("bypass")):
        for word in str(node.scalar).replace(",", " ").split() if node.kind == "scalar" else ():
            if word not in tensors and word != ALL:
                remedy = suggestion(word, tensors, "data spaces") if tensors else "import the problem as well"
                reading.leave(node, f"{word} is not a data space of a problem here", remedy, fields.path)
