"""`traffic`: a TeAAL spec with format, architecture and bindings on actual tensors, to the bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.execute.merged import applies
from polymodel.sparse.execute.plan import Plan, make_plan
from polymodel.sparse.partition import Slices
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic.cache import (
    Clock,
    Lanes,
    ceil_div,
    fullest,
    lanes_of,
    output_lines,
    output_subtree_lines,
)
from polymodel.sparse.traffic.inputs import (
    BufferedRank,
    InputRank,
    element_bits,
    evict_loops,
    held_data,
    places_of,
    subtree_reads,
    use_of,
)
from polymodel.sparse.traffic.nest import OutLevel, OutTree, WalkedEinsum
from polymodel.sparse.traffic.records import (
    CascadeTraffic,
    EinsumTraffic,
    MemoryTraffic,
    TensorTraffic,
    UnitWork,
)
from polymodel.sparse.traffic.replacement import (
    LRU,
    OPTIMAL,
    Accesses,
    FiberAccesses,
    LinesMoved,
    lines_moved,
)
from polymodel.sparse.traffic.units import intersections, merge_steps
from polymodel.spec.teaal.convert import strides_of, with_strides
from polymodel.spec.teaal.records import (
    Binding,
    Expression,
    HardwareComponent,
    IndexedTensor,
    Take,
    TeaalSpec,
)

# Which Einsums run fused, and how long the cascade takes.

_UNITS = ("Compute", "Intersector", "Merger", "Sequencer")


def fused_blocks(spec: TeaalSpec) -> tuple[tuple[str, ...], ...]:
    """Which Einsums run at once (TeAAL, MICRO'23, section 4.3).

    Consecutive Einsums share a block if they run on the same architecture, have the same loops above their
    first spatial one, and use no unit in common. An Einsum without spacetime is alone.
    """
    blocks: list[list[str]] = []
    state: tuple[str, tuple[str, ...]] | None = None
    used: set[str] = set()
    for expression in spec.expressions:
        name = expression.name
        bound = spec.bindings_of(name)
        mapping = spec.mapping_of(name)
        units = set()
        if bound.bindings:
            components = spec.configuration(bound.config).components
            units = {c.name for c in components if c.kind in _UNITS and bound.of(c.name)}
        outer = None
        if mapping.spacetime is not None:
            space = {s.rank for s in mapping.spacetime.space}
            first = (i for i, r in enumerate(mapping.loop_order) if r in space)
            outer = mapping.loop_order[: next(first, len(mapping.loop_order))]
        here = None if outer is None else (bound.config, outer)
        if here is not None and here == state and not used & units:
            blocks[-1].append(name)
            used |= units
        else:
            blocks.append([name])
            used, state = set(units), here
    return tuple(tuple(b) for b in blocks)


def total_time(einsums: Sequence[EinsumTraffic], blocks: Iterable[Iterable[str]]) -> float | None:
    """Per block the busiest component, its times in the Einsums of the block summed; the blocks summed."""
    by_name = {e.einsum: e for e in einsums}
    total: float | None = None
    for block in blocks:
        sums: dict[str, float] = {}
        for name in block:
            for component, time in by_name[name].times.items():
                if time is None:
                    return None
                sums[component] = sums[component] + time if component in sums else time
        busiest = max(sums.values(), default=0.0)
        total = busiest if total is None else total + busiest
    return total


# Iterations of the loop that is merged in one fiber of the output, where its lines are told apart by windows.
MOST_IN_A_FIBER = 2**25
Replacement = Literal["lru", "optimal"]
_POLICIES = (LRU, OPTIMAL)
_SAY_WHICH = 'pass replacement="lru" or "optimal", on the command line --replacement lru or optimal'


def traffic(
    spec: TeaalSpec,
    tensors: Mapping[str, SparseTensor],
    *,
    symbols: Mapping[str, int] | None = None,
    walked: Mapping[str, Sequence[str]] | None = None,
    replacement: Replacement | None = None,
) -> CascadeTraffic:
    """What each Einsum moves between memories and buffers, what its units count, and the time.

    `tensors`: the cascade's inputs, ranks as declared; `symbols`: values of names used as sizes of splits.
    `walked`: tensor -> ranks that are iterated over their whole shape; without it, those ranks of inputs
    that are stored uncompressed with payloads (offsets) of their own, above the last rank. `replacement`:
    what a cache drops when it is full, the line used least recently (`lru`) or the line whose next use is
    furthest in the future (`optimal`); without it, caches must hold all that passes through them. Rules:
    docs/sparse/traffic.md. Raises SpecError for bad input with all faults, Refused for what is not covered.
    """
    spec = with_strides(spec, symbols or {})
    if strides := strides_of(spec):
        remedy = f"give symbols={{{strides[0]!r}: ...}}, or --set {strides[0]}=..."
        raise SpecError([Diagnostic(f"scalar {strides[0]} has no value", remedy)])
    constants = [e.name for e in spec.expressions if not e.operands]
    if constants:
        raise Refused(f"Einsum {constants[0]} reads no tensor", "put its scalars where it is read")
    sizes = _checked(spec, tensors, walked, replacement)
    known = dict(tensors)
    # No count depends on the value of a scalar.
    scalars = {f: 1.0 for e in spec.expressions for f in _factors(e) if isinstance(f, str)}
    values = {**sizes, **(symbols or {})}
    slices = Slices()
    found = []
    for at, expression in enumerate(spec.expressions):
        mapping = spec.mapping_of(expression.name)
        plan = make_plan(expression, mapping, known, sizes, scalars, values, slices, False, {})
        whole = plan_walked(spec, expression.name, walked)
        einsum = _Einsum(spec, expression.name, known, values, whole, replacement)
        later = any(o.tensor == expression.name for e in spec.expressions[at + 1 :] for o in e.operands)
        found.append(einsum.traffic(einsum.nested(plan, later)))
        if later:
            known[expression.name] = einsum.nest.result
    blocks = fused_blocks(spec)
    return CascadeTraffic(tuple(found), blocks, total_time(found, blocks))


def plan_walked(
    spec: TeaalSpec, einsum: str, walked: Mapping[str, Sequence[str]] | None
) -> dict[str, tuple[str, ...]]:
    """Per input of one Einsum, the ranks that are iterated over their whole shape."""
    loops = spec.mapping_of(einsum).loop_order
    used = dict.fromkeys(o.tensor for o in spec.expression(einsum).operands)
    if walked is not None:
        return {t: tuple(r for r in walked[t] if r in loops) for t in used if t in walked}
    found: dict[str, tuple[str, ...]] = {}
    for tensor in (t for t in used if t in spec.inputs):
        names = {b.format for b in spec.bindings_of(einsum).bindings if b.tensor == tensor}
        forms = [f for f in spec.formats if f.tensor == tensor and f.configuration in names]
        ranks = [r for f in forms for r in f.ranks if r.rank != (f.rank_order or (f.ranks[-1].rank,))[-1]]
        whole = [r.rank for r in ranks if r.format == "U" and element_bits(r, "payload")]
        found[tensor] = tuple(dict.fromkeys(r for r in whole if r in loops))
    return found


def _factors(expression: Expression) -> tuple[IndexedTensor | str | float, ...]:
    return tuple(f for term in expression.terms for f in term.factors)


def _checked(
    spec: TeaalSpec,
    tensors: Mapping[str, SparseTensor],
    walked: Mapping[str, Sequence[str]] | None,
    replacement: str | None,
) -> dict[str, int]:
    """The size of every rank, from the tensors; all that is wrong with what was given, at once."""
    faults: list[Diagnostic] = []
    if not any(b.bindings for b in spec.einsum_bindings):
        faults.append(Diagnostic("the spec binds nothing", "add `architecture:` and `bindings:`"))
    if replacement not in (None, *_POLICIES):
        faults.append(Diagnostic(f"replacement is {replacement!r}", 'give "lru", "optimal" or nothing'))
    for name, ranks in (walked or {}).items():
        known = spec.declaration.get(name, ()) if name in spec.inputs else ()
        strange = ", ".join(r for r in ranks if r not in known)
        if name not in spec.inputs or strange:
            what = f"walked names {strange or 'ranks'} of {name}"
            faults.append(
                Diagnostic(what, f"the inputs are {', '.join(spec.inputs)}; give ranks they declare")
            )
    sizes = _sizes(spec, tensors, faults)
    if faults:
        raise SpecError(faults)
    return sizes


def _sizes(spec: TeaalSpec, tensors: Mapping[str, SparseTensor], faults: list[Diagnostic]) -> dict[str, int]:
    """The size of every rank, from the tensors; what does not fit is added to the faults."""
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for name in spec.inputs:
        if name not in tensors:
            faults.append(Diagnostic(f"there is no tensor {name}", "give one for every input of the cascade"))
            continue
        given = tensors[name]
        ranks = spec.declaration[name]
        if tuple(given.ranks) != tuple(ranks):
            what = f"{name} has the ranks {', '.join(given.ranks)}, the spec declares {', '.join(ranks)}"
            faults.append(Diagnostic(what, "use swizzled() or renamed()"))
            continue
        operand = next(o for e in spec.expressions for o in e.operands if o.tensor == name)
        for index, size in zip(operand.indices, given.shape, strict=True):
            rank = index.variable.upper() if index.variable else None
            if rank is not None and sizes.setdefault(rank, size) != size:
                what = f"rank {rank} has size {sizes[rank]} in {owner[rank]} and {size} in {name}"
                faults.append(Diagnostic(what, "tensors that share a rank agree on its size"))
            if rank is not None:
                owner.setdefault(rank, name)
    return sizes


def _joules(memory: HardwareComponent, read: int, write: int) -> float | None:
    """Joules of bits that move; None where the energy of some of them is not given."""
    found = 0.0
    for bits, way in ((read, "read_energy"), (write, "write_energy")):
        each = memory.number(way)
        if bits and each is None:
            return None
        found += bits * (each or 0.0)
    return found


def _held_by(cache: HardwareComponent) -> int:
    """The lines that all instances of a cache hold."""
    depth = cache.number("depth")
    return 2**62 if depth is None else int(min(depth * cache.instances, 2**62))


class _Einsum:
    """One Einsum under way."""

    def __init__(
        self,
        spec: TeaalSpec,
        name: str,
        tensors: Mapping[str, SparseTensor],
        symbols: Mapping[str, int],
        walked: Mapping[str, Sequence[str]],
        replacement: str | None,
    ) -> None:
        self.spec, self.name, self.tensors, self.walked = spec, name, dict(tensors), walked
        self.symbols = symbols
        self.bound = spec.bindings_of(name)
        self.held = held_data(spec, name)
        self.tree: OutTree | None = None
        self.replacement = replacement
        self.moved: dict[tuple[str, ...], LinesMoved] = {}
        self.apart: set[str] = set()

    def nested(self, plan: Plan, later: bool) -> WalkedEinsum:
        """The loops, as far as they have to be walked. `later`: whether another Einsum reads the output."""
        depth = None if later else self.depth(plan)
        spacetime = self.spec.mapping_of(self.name).spacetime
        if depth is None and applies(plan, spacetime, later):
            self.nest = WalkedEinsum(plan, self.walked, merges=True)
            if self._fits():
                return self.nest
        return WalkedEinsum(plan, self.walked, depth)

    def _fits(self) -> bool:
        """Whether what is bound can be told without walking the loop that is merged."""
        if self.nest.merged is None:
            return True
        for component in self._components():
            mine = [h for h in self.held if h.buffer.name == component.name and h.cached]
            uses = [self._use(h) for h in mine if h.source and h.tensor != self.name and not h.root]
            merged = [u for u in uses if u.merged]
            depth = component.number("depth")
            if depth is None:
                continue
            caches = 1 if self._lanes(component, mine) else component.instances
            if depth * caches < len(merged):
                return False
            populated = any(h.tensor == self.name and h.rank == self.nest.names[-1] for h in mine)
            if populated and self._overflows(component, mine):
                self.tree = None
                return False
        mine = [h for h in self.held if h.tensor == self.name and h.source]
        return not any(h.root for h in mine) and (not mine or self.nest.merged.longest <= MOST_IN_A_FIBER)

    def depth(self, plan: Plan) -> int | None:
        """How many loops what is bound needs, None for all of them and the output."""
        names = [r.name for r in plan.order]
        deepest = 0
        for held in self.held:
            if held.source is None:
                continue
            if held.tensor == self.name:
                return None
            for slot in (s for s in plan.slots if s.tensor == held.tensor):
                ranks = {slot.tree.levels[s.level].rank.name: at for at, ss in slot.steps.items() for s in ss}
                deepest = max(
                    deepest, ranks[held.root] if held.root in ranks else ranks.get(held.rank, -1) + 1
                )
        for component in self._components():
            for b in self.bound.of(component.name):
                if component.kind == "Compute":
                    return None
                if component.kind in ("Intersector", "Sequencer") and b.rank in names:
                    deepest = max(deepest, names.index(b.rank) + 1)
        return None if deepest == len(names) else deepest

    def _components(self) -> tuple[HardwareComponent, ...]:
        if not self.bound.bindings:
            return ()
        return self.spec.configuration(self.bound.config).components

    def traffic(self, nest: WalkedEinsum) -> EinsumTraffic:
        self.nest = nest
        if not self.bound.bindings:
            return EinsumTraffic(self.name, (), ())
        configuration = self.spec.configuration(self.bound.config)
        clock = configuration.clock_frequency
        units = []
        for component in self._components():
            bindings = self.bound.of(component.name)
            if not bindings or component.kind in ("DRAM", "Buffet", "Cache"):
                continue
            counts = self._counts(component, bindings)
            rate = None if clock is None else clock * component.instances
            time = None if rate is None else sum(n for _, n in counts) / rate
            units.append(UnitWork(component.name, counts, time, joules=component.number("energy")))
        return EinsumTraffic(self.name, self._memories(), tuple(units))

    # -------------------------------------------------------------------------------------- memories

    def _memories(self) -> tuple[MemoryTraffic, ...]:
        self._cache_misses()
        sums: dict[str, dict[str, list[int]]] = {}
        sources: dict[str, HardwareComponent] = {}
        notes: dict[tuple[str, str], dict[str, None]] = {}
        for held in self.held:
            if held.source is None:
                continue
            read, write = self._lines(held)
            sources[held.source.name] = held.source
            mine = sums.setdefault(held.source.name, {}).setdefault(held.tensor, [0, 0])
            mine[0] += read * held.width
            mine[1] += write * held.width
            if note := self._shared(held):
                notes.setdefault((held.source.name, held.tensor), {})[note] = None
        found = []
        for name, moved in sums.items():
            source = sources[name]
            rows = tuple(
                TensorTraffic(
                    t, r, w if t == self.name else None, "; ".join(notes.get((name, t), ())),
                    _joules(source, r, w),
                )
                for t, (r, w) in moved.items()
            )  # fmt: skip
            rate = source.number("bandwidth")
            bits = sum(m.bits for m in rows)
            time = None if not rate else bits / (rate * source.instances)
            found.append(MemoryTraffic(name, rows, time))
        return tuple(found)

    def _cache_misses(self) -> None:
        """A cache is exact while all that passes through it fits; otherwise it needs a replacement."""
        for component in self._components():
            mine = [h for h in self.held if h.buffer.name == component.name and h.cached]
            if not mine:
                continue
            if lanes := self._lanes(component, mine):
                self._own_misses(component, mine, lanes)
                continue
            if not self._overflows(component, mine):
                continue
            lines = _held_by(component)
            what = f"{self.name}: the cache {component.name} holds {lines} lines, and more pass through it"
            if self.replacement is None:
                raise Refused(f"{what}: which of them it drops is not said", _SAY_WHICH)
            if any(h.root for h in mine):
                raise Refused(f"{what}, whole subtrees among them", "use a Buffet for these")
            accesses, visits, keys = self._used(mine, None)
            self.moved.update(zip(keys, lines_moved(accesses, lines, self.replacement, visits), strict=True))

    def _overflows(self, component: HardwareComponent, mine: Sequence[BufferedRank]) -> bool:
        """Whether more lines pass through a cache than it holds."""
        return sum(max(self._lines(h)) for h in mine) > _held_by(component)

    def _used(
        self, mine: Sequence[BufferedRank], lanes: Lanes | None
    ) -> tuple[list[Accesses], FiberAccesses | None, list[tuple[str, ...]]]:
        """All accesses to a cache, those of the loop that is merged by whole fibers, and the kinds of data,
        with those of whole fibers last."""
        clock = Clock(self.nest)
        accesses: list[Accesses] = []
        keys: list[tuple[str, ...]] = []
        whole: list[tuple[bool, tuple[str, ...], int]] = []
        for held in mine:
            if held.tensor == self.name:
                accesses.append(clock.populated(self._out_level(held.rank), held.per_line))
            elif (use := self._use(held)).merged:
                # Of an element the coordinate is read first.
                whole.append((use.how == "payload", held.key, use.per_line))
                continue
            else:
                accesses.append(use.accesses(clock, lanes))
            keys.append(held.key)
        whole.sort()
        visits = None
        if self.nest.merged is not None and whole:
            visits = clock.fibers(self.nest.merged, [per_line for *_, per_line in whole], lanes)
        return accesses, visits, [*keys, *(key for _, key, _ in whole)]

    def _lanes(self, component: HardwareComponent, mine: Sequence[BufferedRank]) -> Lanes | None:
        """The instances of a cache that each has what it reads for itself, and the spacetime says when."""
        most = max(c.instances for c in self._components() if self.bound.of(c.name))
        if component.instances == 1 or component.instances < most:
            return None
        if any(h.tensor == self.name or h.root for h in mine):
            return None
        lanes = lanes_of(self.nest, self.spec.mapping_of(self.name).spacetime, component.instances)
        if lanes is None or any(self._use(h).loop < lanes.loop for h in mine):
            return None
        return lanes

    def _own_misses(self, component: HardwareComponent, mine: Sequence[BufferedRank], lanes: Lanes) -> None:
        """Misses of all instances, each a cache by itself."""
        accesses, visits, keys = self._used(mine, lanes)
        depth = component.number("depth")
        lines = int(min(2**62 if depth is None else depth, 2**62))
        most = fullest([a.line for a in accesses], visits, lanes.instances)
        if self.replacement is None and most > lines:
            what = f"{self.name}: each of the {lanes.instances} caches {component.name} holds {lines} lines"
            what += ", and more pass through one of them: which of them it drops is not said"
            raise Refused(what, _SAY_WHICH)
        # Where all that passes through them fits, every policy does the same.
        found = lines_moved(accesses, lines, self.replacement or LRU, visits)
        self.moved.update(zip(keys, found, strict=True))
        self.apart.add(component.name)

    def _shared(self, held: BufferedRank) -> str:
        """What to know of a number where there are several instances of the buffer; empty if nothing."""
        name, n = held.buffer.name, held.buffer.instances
        if n == 1:
            return ""
        if name in self.apart:
            return f"{n} caches {name}, point i of space on number i mod {n}"
        spacetime = self.spec.mapping_of(self.name).spacetime
        space = [s.rank for s in spacetime.space] if spacetime is not None else []
        if not held.cached:
            names = self.nest.names
            evict = held.binding.evict_on
            within = evict in names and all(names.index(r) <= names.index(evict) for r in space)
            return "" if within or not space else f"{name}: as if its {n} instances shared one buffer"
        return f"{name}: as if its {n} instances shared one cache, not one for each"

    def _lines(self, held: BufferedRank) -> tuple[int, int]:
        """Lines read and written."""
        if held.key in self.moved:
            return self.moved[held.key].read, self.moved[held.key].write
        if held.tensor == self.name:
            return self._out_lines(held)
        nest = self.nest
        places = places_of(nest, held)
        if held.root:
            root, depth = places[held.root], places[held.rank].depth
            evict = evict_loops(held, nest.names, root.loop)
            return subtree_reads(nest, held.tensor, root, depth, held.per_line, evict), 0
        return self._use(held).fetched(evict_loops(held, nest.names, places[held.rank].loop)), 0

    def _use(self, held: BufferedRank) -> InputRank:
        return use_of(self.nest, held, self._leader(places_of(self.nest, held)[held.rank].loop))

    def _leader(self, loop: int) -> str:
        """The leader of the leader-follower intersection at a loop, empty without one."""
        name = self.nest.names[loop]
        for component in self._components():
            if component.kind == "Intersector" and component.type == "leader-follower":
                for b in self.bound.of(component.name):
                    if b.rank == name:
                        return b.leader
        return ""

    def _out_lines(self, held: BufferedRank) -> tuple[int, int]:
        tree, merged, last = self._out_tree(), self.nest.merged, len(self.nest.loops)
        if merged is not None and held.rank == self.nest.names[last]:
            evict = evict_loops(held, self.nest.names, last)
            if evict > last:
                return merged.iterations - self.nest.touched, merged.iterations
            window = self.nest.up(last - 1, evict - 1)
            if merged.within(window):  # then what is first touched is new
                return 0, int(ceil_div(merged.sizes, held.per_line).sum())
            return merged.lines(window, held.per_line)
        level = self._out_level(held.rank)
        if not held.root:
            return output_lines(
                self.nest, level, held.per_line, evict_loops(held, self.nest.names, level.loop)
            )
        self._out_level(held.root)
        root = tree.depth(held.root)
        outer = tree.levels[root - 1].loop if root else -1
        evict = evict_loops(held, self.nest.names, outer + 1)
        finest = max(
            evict_loops(h, self.nest.names, outer + 1)
            for h in self.held
            if (h.tensor, h.root) == (held.tensor, held.root)
        )
        return output_subtree_lines(tree, root, tree.depth(held.rank), held.per_line, evict, finest)

    def _out_tree(self) -> OutTree:
        if self.tree is None:
            self.tree = OutTree(self.nest)
        return self.tree

    def _out_level(self, rank: str) -> OutLevel:
        tree = self._out_tree()
        ranks = [level.rank for level in tree.levels]
        if rank not in ranks:
            what = f"{self.name} has no rank {rank} in these loops"
            raise SpecError([Diagnostic(what, f"it has {', '.join(ranks)}")])
        return tree.levels[tree.depth(rank)]

    # ----------------------------------------------------------------------------------------- units

    def _counts(
        self, component: HardwareComponent, bindings: Sequence[Binding]
    ) -> tuple[tuple[str, int], ...]:
        if component.kind == "Compute":
            return tuple((b.op or component.type, self._operations(b.op or component.type)) for b in bindings)
        if component.kind == "Intersector":
            steps = sum(intersections(self.nest, self._loop(b), component.type, b.leader) for b in bindings)
            return (("intersect", steps),)
        if component.kind == "Sequencer":
            return tuple((b.rank, self.nest.nodes(self._loop(b))) for b in bindings)
        return tuple((b.tensor + "_" + "".join(b.init_ranks), self._merges(component, b)) for b in bindings)

    def _operations(self, op: str) -> int:
        """Multiplies: one less than factors per computation; adds: updates of values that are there."""
        term = self.spec.expression(self.name).terms[0]
        if op == "add":
            return 0 if isinstance(term, Take) else self.nest.activities - self.nest.touched
        return 0 if isinstance(term, Take) else self.nest.activities * (len(term.factors) - 1)

    def _loop(self, binding: Binding) -> int:
        if binding.rank not in self.nest.names:
            what = f"{self.name}: {binding.component} is bound to {binding.rank}, which is not a loop"
            raise SpecError([Diagnostic(what, f"the loops are {', '.join(self.nest.names)}")])
        return self.nest.names.index(binding.rank)

    def _merges(self, component: HardwareComponent, binding: Binding) -> int:
        tensor = self.tensors.get(binding.tensor)
        if tensor is None or set(binding.init_ranks) != set(tensor.ranks):
            what = f"{self.name}: {component.name} merges {binding.tensor} {', '.join(binding.init_ranks)}"
            raise Refused(f"{what}, which are not its declared ranks", "merge tensors before they are split")
        radix = component.number("comparator_radix") or float("inf")
        inputs = component.number("inputs")
        pipelined = inputs is not None and inputs != float("inf")
        return merge_steps(tensor, binding.init_ranks, binding.final_ranks, radix, pipelined)
