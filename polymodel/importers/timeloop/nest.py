"""Convert `mapping:` of Timeloop: directives per level become one loop nest, outermost first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from polymodel.importers.expressions import evaluate
from polymodel.importers.timeloop.parts import TimeloopLevel, called, fanned
from polymodel.importers.timeloop.problem import EinsumShape
from polymodel.importers.timeloop.reading import LARGEST, Fields, TimeloopReading, count_of, letters, mended
from polymodel.spec.faults import TextFault, YamlNode, suggestion

_FACTOR = re.compile(
    r"\s*,?\s*(?P<name>[A-Za-z_]\w*?)\s*(?P<sign><=|>=|<|>|=)?\s*(?P<bound>\d{1,18})"
    r"(?:\s*,\s*(?P<last>\d{1,18}))?(?=[\s,]|$)",
    re.ASCII,
)
_TYPES = {
    "temporal": "temporal",
    "spatial": "spatial",
    **dict.fromkeys(("datatype", "dataspace", "bypass", "storage"), "kept"),
}


@dataclass(frozen=True)
class WrittenFactor:
    """A factor of a text and its position: a sign such as `=` or `<=`, a bound, and the bound in the last
    iteration of the loops outside."""

    name: str
    sign: str
    bound: int
    last: int
    text: str
    at: int


def written_factors(
    reading: TimeloopReading, node: YamlNode, text: str, path: str, example: str
) -> Iterator[WrittenFactor]:
    """Yield the factors of a text such as `M=16 K<=4`; one with variables (`M=TILE*2`) must be the last."""
    at = 0
    while text[at:].strip(" ,\n\t"):
        match = _FACTOR.match(text, at)
        if match is None:
            break
        bound, sign = int(match["bound"]), match["sign"] or "="
        last = int(match["last"] or bound)
        yield WrittenFactor(match["name"], sign, bound, last, match[0].strip(), match.start("name"))
        at = match.end()
    rest = text[at:].strip()
    if not rest.strip(","):
        return
    place = at if text == str(node.scalar) else None
    sign = next((s for s in ("<=", ">=", "==", "<", ">", "=") if s in rest), "=")
    name, _, value = rest.partition(sign)
    try:
        number = evaluate(value, reading.variables) if value.strip() else None
    except TextFault as fault:
        reading.fault(node, fault.message, mended(fault), path, place, code=fault.code)
        return
    if number is None or not 0 <= number <= LARGEST or number != int(number):
        reading.fault(node, f"{rest[:60]!r} is not a factor", example, path, place, code="syntax-error")
        return
    sign = "=" if sign == "==" else sign
    yield WrittenFactor(name.strip(), sign, int(number), int(number), rest, at)


@dataclass(frozen=True)
class NestLoop:
    """A loop of the nest, in polymodel's names; `last`: its bound in the last iteration of the loops outside.

    `part`: the storage above it; for a spatial loop the part whose instances it runs over. `axis`: X, Y or
    "".
    """

    part: str
    variable: str
    bound: int
    last: int
    axis: str
    node: YamlNode


@dataclass(frozen=True)
class TimeloopNest:
    """All loops with their order per part, and what each storage keeps."""

    loops: tuple[NestLoop, ...]
    kept: Mapping[str, tuple[str, ...]]

    def of(self, part: str, spatial: bool) -> tuple[NestLoop, ...]:
        return tuple(x for x in self.loops if x.part == part and bool(x.axis) == spatial)

    def tile(self, loop: NestLoop) -> int:
        """Return the number of values of its variable below a loop: the product of the bounds further
        inside."""
        tile, below = 1, False
        for x in self.loops:
            if below and x.variable == loop.variable:
                tile *= x.bound
            below = below or x is loop
        return tile


def nest_of(
    reading: TimeloopReading, node: YamlNode, parts: Sequence[TimeloopLevel], shape: EinsumShape
) -> TimeloopNest:
    """Return the loops of a mapping without those of one iteration. Faults: unknown names, factors that do
    not match sizes."""
    builder = _NestBuilder(reading, tuple(parts), shape)
    entries = node.elements
    if entries is None:
        fields = Fields(reading, node, "mapping")
        fields.ignore("version", "type")
        entries = fields.items("nodes", "directives", "targets")
        if not entries:
            message = "a mapping is a list of directives"
            reading.fault(node, message, "write `- {target: DRAM, ...}`", "mapping", code="wrong-type")
    for i, entry in enumerate(entries):
        builder.directive(Fields(reading, entry, f"mapping[{i}]"))
    return builder.finished(node)


class _NestBuilder:
    def __init__(
        self, reading: TimeloopReading, parts: tuple[TimeloopLevel, ...], shape: EinsumShape
    ) -> None:
        self.reading = reading
        self.parts = parts
        self.shape = shape
        self.memories = [p.name for p in parts if p.kind == "memory"]
        self.temporal: dict[str, list[NestLoop]] = {}
        self.spatial: dict[str, list[NestLoop]] = {}
        self.before = len(reading.faults)
        self.keep: dict[str, set[str]] = {m: set() for m in self.memories}
        self.bypass: dict[str, set[str]] = {m: set() for m in self.memories}

    def directive(self, fields: Fields) -> None:
        kind = fields.text("type").lower()
        target = fields.need("target", example="target: DRAM")
        if target is None:
            return
        if kind not in _TYPES:
            remedy = suggestion(kind, _TYPES, "types") if kind else "add e.g. `type: temporal`"
            message = f"a directive of type {kind or '(none)'}"
            self.reading.fault(fields.node, message, remedy, fields.path, code="unknown-choice")
            return
        if _TYPES[kind] == "kept":
            self.keep_and_bypass(fields, target)
        elif kind == "temporal":
            self.loops(fields, target)
        else:
            self.across(fields, target)

    def called(self, target: YamlNode) -> str:
        return called(self.parts, str(target.scalar))

    def named(self, target: YamlNode, known: Sequence[str], path: str) -> str | None:
        name = self.called(target)
        if name in known:
            return name
        what = "compute unit" if name == self.parts[-1].name else "level"
        message = (
            f"there is no level {name[:60]}"
            if what == "level"
            else f"{name} computes, so nothing is held in it"
        )
        self.reading.fault(target, message, suggestion(name, known, "levels"), path, code="unknown-name")
        return None

    def is_container(self, target: YamlNode) -> bool:
        """Return whether the target is a container, which has no loops and holds nothing, although some files
        list it."""
        return any(p.name == self.called(target) and p.kind == "container" for p in self.parts)

    def keep_and_bypass(self, fields: Fields, target: YamlNode) -> None:
        if self.is_container(target) and not fields.words("keep"):
            fields.ignore("bypass", "keep")
            return
        level = self.named(target, self.memories, fields.path)
        tensors = self.shape.tensors
        for key, into in (("keep", self.keep), ("bypass", self.bypass)):
            for word, node in fields.words(key) or ():
                if word not in tensors:
                    remedy = suggestion(word, tensors, "data spaces")
                    message = f"there is no data space {word}"
                    self.reading.fault(node, message, remedy, fields.path, code="unknown-name")
                elif level is not None:
                    into[level].add(tensors[word])
        if level is None:
            return
        both = sorted(self.keep[level] & self.bypass[level])
        if both:
            what = f"{', '.join(both)} cannot both be kept in {level} and bypass it"
            self.reading.fault(fields.node, what, "name it once", fields.path, code="inconsistent-values")

    def loops(self, fields: Fields, target: YamlNode) -> None:
        fields.ignore("split")
        found = self.factors(fields, self.called(target))
        if self.is_container(target) and all(x.bound == 1 for x, _ in found):
            return
        level = self.named(target, self.memories, fields.path)
        if level is None:
            return
        if level in self.temporal:
            what = f"{level} has two temporal directives"
            remedy = "write all its loops in one"
            self.reading.fault(fields.node, what, remedy, fields.path, code="duplicate-name")
        self.temporal[level] = [x for x, _ in found]

    def across(self, fields: Fields, target: YamlNode) -> None:
        every = [p.name for p in self.parts]
        name = self.named(target, every, fields.path)
        split = fields.take("split")
        at = None if split is None else count_of(self.reading, split, {}, f"{fields.path}.split", least=0)
        found = self.factors(fields, name or "")
        busy = [x for x, _ in found if x.bound > 1 or x.last == 0]
        if name is None or not busy:
            return
        part = self.fanned(name, fields)
        if part is None:
            return
        if part.name in self.spatial:
            what = f"the instances of {part.name} have two spatial directives"
            remedy = "write all loops in one"
            self.reading.fault(fields.node, what, remedy, fields.path, code="duplicate-name")
        # Of a permutation, innermost first, the loops before the split run along X.
        axes = {x.variable: "X" if at is None or i < at else "Y" for x, i in found}
        self.spatial[part.name] = [replace(x, part=part.name, axis=axes[x.variable]) for x, _ in found]

    def fanned(self, name: str, fields: Fields) -> TimeloopLevel | None:
        """Return the part whose instances a spatial directive runs over: the target itself, or the next part
        inside it."""
        below = fanned(self.parts, name)
        if len(below) == 1:
            return below[0]
        if not below:
            what, remedy = f"inside {name} nothing has several instances", "give meshX, or use temporal loops"
        else:
            what = f"inside {name} there are instances of {' and of '.join(p.name for p in below)}"
            remedy = "write one directive for each, with it as the target"
        self.reading.fault(fields.node, what, remedy, fields.path, code="no-counterpart")
        return None

    def factors(self, fields: Fields, part: str) -> list[tuple[NestLoop, int]]:
        """Return loops outermost first, with their position in the permutation (innermost first)."""
        bounds = self.bounds(fields, part)
        order = self.order(fields)
        result = []
        for at, variable in enumerate(order):
            if variable in bounds:
                result.append((bounds[variable], at))
        return result[::-1]

    def bounds(self, fields: Fields, part: str) -> dict[str, NestLoop]:
        result: dict[str, NestLoop] = {}
        node = fields.take("factors")
        if node is None:
            return result
        path = f"{fields.path}.factors"
        if node.entries is not None:
            for entry in node.entries:
                value = self.reading.take(entry)
                pair = value.elements if value.elements is not None else (value,)
                numbers = [count_of(self.reading, v, fields.scope, path, least=0) for v in pair[:2]]
                if None not in numbers and numbers:
                    bound, last = numbers[0] or 0, numbers[-1] or 0
                    self.add(result, entry.key, bound, last, value, path, part)
            return result
        for item in node.elements if node.elements is not None else (node,):
            self.text(result, item, path, part)
        return result

    def text(self, found: dict[str, NestLoop], node: YamlNode, path: str, part: str) -> None:
        example = "write e.g. M=16 K=4, or 'M=16,2' (in a list in quotes) for a last bound of 2"
        for factor in written_factors(self.reading, node, str(node.scalar or ""), path, example):
            if factor.sign != "=":
                what = f"{factor.text} is a bound for a search, not a factor"
                self.reading.fault(node, what, "write NAME=NUMBER", path, factor.at, code="wrong-type")
            self.add(found, factor.name, factor.bound, factor.last, node, path, part)

    def add(
        self,
        found: dict[str, NestLoop],
        name: str,
        bound: int,
        last: int,
        node: YamlNode,
        path: str,
        part: str,
    ) -> None:
        dims = self.shape.dims
        if name not in dims:
            remedy = suggestion(name, dims, "dimensions")
            self.reading.fault(node, f"there is no dimension {name}", remedy, path, code="unknown-name")
        elif dims[name] in found:
            message = f"{name} has two factors here"
            self.reading.fault(node, message, "give it one", path, code="duplicate-name")
        elif bound and not 1 <= last <= bound:
            what = f"the last bound of {name} is {last}, the others {bound}"
            remedy = "it is at least 1 and at most the others"
            self.reading.fault(node, what, remedy, path, code="inconsistent-values")
        else:
            found[dims[name]] = NestLoop(part, dims[name], bound, last if bound else 0, "", node)

    def order(self, fields: Fields) -> list[str]:
        """Return rank variables, innermost first; those that the permutation omits are outermost."""
        result = listed(self.reading, fields, self.shape)
        return [*result, *(v for v in self.shape.dims.values() if v not in result)]

    def finished(self, node: YamlNode) -> TimeloopNest:
        loops: list[NestLoop] = []
        for part in self.parts:
            loops += self.spatial.get(part.name, [])
            loops += self.temporal.get(part.name, [])
        loops = self.whole(node, self.filled(loops))
        for part in self.parts:
            own = [x for x in loops if x.part == part.name and x.axis and x.bound > 1]
            moved = {id(x): y for x, y in zip(own, self.placed(part, own), strict=True)}
            loops = [moved.get(id(x), x) for x in loops]
        return TimeloopNest(tuple(x for x in loops if x.bound > 1), self.stored())

    def placed(self, part: TimeloopLevel, loops: list[NestLoop]) -> list[NestLoop]:
        """Return the spatial loops over a part, along axes that they fit; a fault if they do not fit."""
        x, y = (_product(loops, axis) for axis in "XY")
        if x <= part.mesh[0] and y <= part.mesh[1]:
            return loops
        if x * y > part.instances:
            what = f"the spatial factors make {x * y}, {part.name} has {part.instances} instances"
            remedy = "use smaller factors, or a larger mesh"
            self.reading.fault(loops[0].node, what, remedy, "mapping", code="over-fanout")
            return loops
        if not part.shaped:
            return loops
        moved, room = [], list(part.mesh)
        for loop in loops:
            axis = next((i for i in (0, 1) if room[i] >= loop.bound), None)
            if axis is None:
                what = f"the spatial factors make {x} along X and {y} along Y, the mesh of {part.name} is "
                what += f"{part.mesh[0]} by {part.mesh[1]}"
                remedy = "set `split`, or use smaller factors"
                self.reading.fault(loop.node, what, remedy, "mapping", code="over-fanout")
                return loops
            room[axis] //= loop.bound
            moved.append(replace(loop, axis="XY"[axis]))
        self.reading.note(
            loops[0].node, f"the spatial loops over {part.name} are put where they fit in the mesh"
        )
        return moved

    def filled(self, loops: list[NestLoop]) -> list[NestLoop]:
        """Replace a factor of 0 by the quotient that the other factors of its dimension leave."""
        for theirs, ours in self.shape.dims.items():
            zero = [x for x in loops if x.variable == ours and x.bound == 0]
            if not zero:
                continue
            rest, size = 1, self.shape.sizes.get(ours, 1)
            for x in loops:
                rest *= x.bound if x.variable == ours and x.bound else 1
            if len(zero) > 1 or size % rest:
                what = f"the factor 0 of {theirs} cannot be computed: {size} over {rest}"
                remedy = "write the factor"
                self.reading.fault(zero[0].node, what, remedy, "mapping", code="invalid-tile-size")
            full = max(size // rest, 1)
            loops = [replace(x, bound=full, last=full) if x is zero[0] else x for x in loops]
            loops = [replace(x, bound=1, last=1) if x.bound == 0 and x.variable == ours else x for x in loops]
        return loops

    def whole(self, node: YamlNode, loops: list[NestLoop]) -> list[NestLoop]:
        """Check factors against sizes: total = total * bound + last - 1, from outer to inner loops."""
        if len(self.reading.faults) > self.before:
            return loops  # missing factors may be in a directive that has a fault
        for theirs, ours in self.shape.dims.items():
            own, total = [x for x in loops if x.variable == ours], 0
            for x in own:
                total = total * x.bound + x.last - 1
            size = self.shape.sizes.get(ours, 1)
            faulty = size == 1 and len(self.reading.faults)  # invalid sizes were replaced by 1
            if total + 1 != size and not faulty:
                what = f"the factors of {theirs} make {total + 1}, its size is {size}"
                where = own[0].node if own else node
                remedy = f"let the factors of {theirs} multiply to {size}"
                self.reading.fault(where, what, remedy, "mapping", code="invalid-tile-size")
        return loops

    def stored(self) -> dict[str, tuple[str, ...]]:
        """Return what each storage keeps: all tensors for which nothing else is specified."""
        result: dict[str, tuple[str, ...]] = {}
        every = tuple(self.shape.tensors.values())
        by_name = {p.name: p for p in self.parts}
        for level in self.memories:
            part = by_name[level]
            silent = set(every) - self.keep[level] - self.bypass[level]
            gone = self.bypass[level] | (silent if part.entries == 0 else silent & part.held.bypass)
            if part.entries == 0 and self.keep[level]:
                what, remedy = f"{level} has no words, so it keeps nothing", "give it a size, or bypass it"
                self.reading.fault(part.node, what, remedy, "mapping", code="missing-storage")
            result[level] = tuple(t for t in every if t not in gone)
        for t in every:
            if t not in {x for kept in result.values() for x in kept}:
                what = f"{t} is kept nowhere"
                part = next(p for p in self.parts if p.kind == "memory")
                self.reading.fault(
                    part.node, what, "keep it in the outermost storage", "mapping", code="missing-storage"
                )
        return result


def listed(reading: TimeloopReading, fields: Fields, shape: EinsumShape) -> list[str]:
    """Return the variables of `permutation:`, innermost first."""
    dims = shape.dims
    words = fields.words("permutation") or ()
    given = [(w, node) for word, node in words for w in ([word] if word in dims else letters(word, dims))]
    result: list[str] = []
    for word, node in given:
        if word not in dims:
            remedy = suggestion(word, dims, "dimensions")
            message = f"there is no dimension {word}"
            reading.fault(node, message, remedy, f"{fields.path}.permutation", code="unknown-name")
        elif dims[word] in result:
            what = f"{word} is there twice"
            reading.fault(node, what, "keep it once", f"{fields.path}.permutation", code="duplicate-name")
        else:
            result.append(dims[word])
    return result


def _product(loops: Sequence[NestLoop], axis: str) -> int:
    total = 1
    for x in loops:
        total *= x.bound if x.axis == axis else 1
    return total
