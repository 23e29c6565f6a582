"""Compute the traffic of one Einsum between memories and buffers, and the counts of its units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.execute.merged import applies
from polymodel.sparse.execute.plan import Plan
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
    buffered_ranks,
    evict_loops,
    places_of,
    subtree_reads,
    use_of,
)
from polymodel.sparse.traffic.nest import ExpandedPlan, OutLevel, OutTree, WalkedEinsum
from polymodel.sparse.traffic.records import EinsumTraffic, MemoryTraffic, TensorTraffic, UnitWork
from polymodel.sparse.traffic.replacement import (
    LRU,
    Accesses,
    FiberAccesses,
    LinesMoved,
    lines_moved,
)
from polymodel.sparse.traffic.units import intersections, merge_steps
from polymodel.spec.teaal.records import Binding, HardwareComponent, Take, TeaalSpec

# The most iterations of a merged loop in one fiber of the output, where windows distinguish its lines.
MOST_IN_A_FIBER = 2**25
_SAY_WHICH = 'pass replacement="lru" or "optimal", on the command line --replacement lru or optimal'


def _joules(memory: HardwareComponent, read: int, write: int) -> float | None:
    """Return the joules of bits that move; None where the energy of some of them is not given."""
    result = 0.0
    for bits, way in ((read, "read_energy"), (write, "write_energy")):
        each = memory.number(way)
        if bits and each is None:
            return None
        result += bits * (each or 0.0)
    return result


def capacity_lines(cache: HardwareComponent) -> int:
    """Return the number of lines that all instances of a cache hold."""
    depth = cache.number("depth")
    return 2**62 if depth is None else int(min(depth * cache.instances, 2**62))


class CountedEinsum:
    """Counts the traffic of one Einsum."""

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
        self.held = buffered_ranks(spec, name)
        self.tree: OutTree | None = None
        self.replacement = replacement
        self.moved: dict[tuple[str, ...], LinesMoved] = {}
        self.apart: set[str] = set()

    def again(self) -> CountedEinsum:
        """Return the same Einsum with nothing counted yet."""
        return CountedEinsum(self.spec, self.name, self.tensors, self.symbols, self.walked, self.replacement)

    def walk(self, plan: ExpandedPlan, later: bool) -> None:
        """Walk the loops, as far as necessary. `later`: whether a later Einsum reads the output."""
        depth = None if later else self.depth(plan.plan)
        spacetime = self.spec.mapping_of(self.name).spacetime
        if depth is None and applies(plan.plan, spacetime, later):
            self.nest = WalkedEinsum(plan, merges=True)
            if self._fits():
                return
        self.nest = WalkedEinsum(plan, depth)

    def _fits(self) -> bool:
        """Return whether all bindings can be counted without walking the merged loop."""
        if self.nest.merged is None:
            return True
        for component in self.components:
            mine = [h for h in self.held if h.buffer.name == component.name and h.cached]
            uses = [self.use(h) for h in mine if h.source and h.tensor != self.name and not h.root]
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
        """Return the number of loops that the bindings need; None for all loops and the output."""
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
        for component in self.components:
            for b in self.bound.of(component.name):
                if component.kind == "Compute":
                    return None
                if component.kind in ("Intersector", "Sequencer") and b.rank in names:
                    deepest = max(deepest, names.index(b.rank) + 1)
        return None if deepest == len(names) else deepest

    @property
    def components(self) -> tuple[HardwareComponent, ...]:
        if not self.bound.bindings:
            return ()
        return self.spec.configuration(self.bound.config).components

    def traffic(self) -> EinsumTraffic:
        """Return all traffic, once the loops are walked."""
        if not self.bound.bindings:
            return EinsumTraffic(self.name, (), ())
        self._cache_misses()
        return self.answer({h.key: self.lines(h) for h in self.fetched}, self.unit_counts())

    @property
    def fetched(self) -> tuple[BufferedRank, ...]:
        """The data that buffers hold and that come from an outer memory."""
        return tuple(h for h in self.held if h.source is not None)

    def answer(
        self,
        lines: Mapping[tuple[str, ...], tuple[int, int]],
        counts: Mapping[str, tuple[tuple[str, int], ...]],
    ) -> EinsumTraffic:
        """Return the traffic, from the lines read and written of all data that are `fetched`, and from the
        counts of the units."""
        clock = self.spec.configuration(self.bound.config).clock_frequency
        units = []
        for component in self.components:
            if component.name not in counts:
                continue
            rate = None if clock is None else clock * component.instances
            mine = counts[component.name]
            time = None if rate is None else sum(n for _, n in mine) / rate
            units.append(UnitWork(component.name, mine, time, joules=component.number("energy")))
        return EinsumTraffic(self.name, self._memories(lines), tuple(units))

    def unit_counts(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """Return the counts of each unit, by its name."""
        result = {}
        for component in self.components:
            bindings = self.bound.of(component.name)
            if bindings and component.kind not in ("DRAM", "Buffet", "Cache"):
                result[component.name] = self._counts(component, bindings)
        return result

    # -------------------------------------------------------------------------------------- memories

    def _memories(self, lines: Mapping[tuple[str, ...], tuple[int, int]]) -> tuple[MemoryTraffic, ...]:
        sums: dict[str, dict[str, list[int]]] = {}
        sources: dict[str, HardwareComponent] = {}
        notes: dict[tuple[str, str], dict[str, None]] = {}
        for held in self.fetched:
            source = held.source
            assert source is not None
            read, write = lines[held.key]
            sources[source.name] = source
            mine = sums.setdefault(source.name, {}).setdefault(held.tensor, [0, 0])
            mine[0] += read * held.width
            mine[1] += write * held.width
            if note := self._shared(held):
                notes.setdefault((source.name, held.tensor), {})[note] = None
        result = []
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
            result.append(MemoryTraffic(name, rows, time))
        return tuple(result)

    def _cache_misses(self) -> None:
        """Count the misses of caches. A cache is exact while everything that passes through it fits;
        otherwise a replacement policy is needed."""
        for component in self.components:
            mine = [h for h in self.held if h.buffer.name == component.name and h.cached]
            if not mine:
                continue
            if lanes := self._lanes(component, mine):
                self._own_misses(component, mine, lanes)
                continue
            if not self._overflows(component, mine):
                continue
            if self.replacement is None:
                raise self.overflowing(component)
            if any(h.root for h in mine):
                what = f"{self._overflow(component)}, whole subtrees among them"
                raise Refused(what, "use a Buffet for these", code="unsupported-memory")
            lines = capacity_lines(component)
            accesses, visits, keys = self.used(mine, None)
            self.moved.update(zip(keys, lines_moved(accesses, lines, self.replacement, visits), strict=True))

    def _overflow(self, component: HardwareComponent) -> str:
        lines = capacity_lines(component)
        return f"{self.name}: the cache {component.name} holds {lines} lines, and more pass through it"

    def overflowing(self, component: HardwareComponent) -> Refused:
        """Return the error for a cache that does not hold everything, without a replacement policy."""
        message = f"{self._overflow(component)}: the spec does not say which of them it drops"
        return Refused(message, _SAY_WHICH, code="unsupported-memory")

    def _overflows(self, component: HardwareComponent, mine: Sequence[BufferedRank]) -> bool:
        """Return whether more lines pass through a cache than it holds."""
        return sum(max(self.lines(h)) for h in mine) > capacity_lines(component)

    def used(
        self, mine: Sequence[BufferedRank], lanes: Lanes | None
    ) -> tuple[list[Accesses], FiberAccesses | None, list[tuple[str, ...]]]:
        """Return all accesses to a cache (those of the merged loop by whole fibers), and the kinds of data,
        with those of whole fibers last."""
        clock = Clock(self.nest)
        accesses: list[Accesses] = []
        keys: list[tuple[str, ...]] = []
        whole: list[tuple[bool, tuple[str, ...], int]] = []
        for held in mine:
            if held.tensor == self.name:
                accesses.append(clock.populated(self.out_level(held.rank), held.per_line))
            elif (use := self.use(held)).merged:
                # The coordinate of an element is read before its payload.
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
        """Return the instances of a cache, if each has its own cache for what it reads and the spacetime
        determines which one is used; else None."""
        most = max(c.instances for c in self.components if self.bound.of(c.name))
        if component.instances == 1 or component.instances < most:
            return None
        if any(h.tensor == self.name or h.root for h in mine):
            return None
        lanes = lanes_of(self.nest, self.spec.mapping_of(self.name).spacetime, component.instances)
        if lanes is None or any(self.use(h).loop < lanes.loop for h in mine):
            return None
        return lanes

    def _own_misses(self, component: HardwareComponent, mine: Sequence[BufferedRank], lanes: Lanes) -> None:
        """Count the misses of all instances, each of which is a cache by itself."""
        accesses, visits, keys = self.used(mine, lanes)
        depth = component.number("depth")
        lines = int(min(2**62 if depth is None else depth, 2**62))
        most = fullest([a.line for a in accesses], visits, lanes.instances)
        if self.replacement is None and most > lines:
            what = f"{self.name}: each of the {lanes.instances} caches {component.name} holds {lines} lines"
            what += ", and more pass through one of them: the spec does not say which of them it drops"
            raise Refused(what, _SAY_WHICH, code="unsupported-memory")
        # Where everything that passes through them fits, all policies are equal.
        found = lines_moved(accesses, lines, self.replacement or LRU, visits)
        self.moved.update(zip(keys, found, strict=True))
        self.apart.add(component.name)

    def _shared(self, held: BufferedRank) -> str:
        """Return the assumption behind a number where the buffer has several instances; empty if there is
        none."""
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

    def lines(self, held: BufferedRank) -> tuple[int, int]:
        """Return the lines read and written."""
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
        return self.use(held).fetched(evict_loops(held, nest.names, places[held.rank].loop)), 0

    def use(self, held: BufferedRank) -> InputRank:
        return use_of(self.nest, held, self._leader(places_of(self.nest, held)[held.rank].loop))

    def _leader(self, loop: int) -> str:
        """Return the leader of the leader-follower intersection at a loop; empty if there is none."""
        name = self.nest.names[loop]
        for component in self.components:
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
            if merged.within(window):  # then every first access is to a new element
                return 0, int(ceil_div(merged.sizes, held.per_line).sum())
            return merged.lines(window, held.per_line)
        level = self.out_level(held.rank)
        if not held.root:
            return output_lines(
                self.nest, level, held.per_line, evict_loops(held, self.nest.names, level.loop)
            )
        self.out_level(held.root)
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

    def out_level(self, rank: str) -> OutLevel:
        tree = self._out_tree()
        ranks = [level.rank for level in tree.levels]
        if rank not in ranks:
            what = f"{self.name} has no rank {rank} in these loops"
            raise SpecError([Diagnostic(what, f"it has {', '.join(ranks)}", code="unknown-name")])
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
        """Return the number of operations: multiplications are one less than the factors per computation;
        additions are updates of existing values."""
        term = self.spec.expression(self.name).terms[0]
        if op == "add":
            return 0 if isinstance(term, Take) else self.nest.activities - self.nest.touched
        return 0 if isinstance(term, Take) else self.nest.activities * (len(term.factors) - 1)

    def _loop(self, binding: Binding) -> int:
        if binding.rank not in self.nest.names:
            what = f"{self.name}: {binding.component} is bound to {binding.rank}, which is not a loop"
            remedy = f"the loops are {', '.join(self.nest.names)}"
            raise SpecError([Diagnostic(what, remedy, code="unknown-name")])
        return self.nest.names.index(binding.rank)

    def _merges(self, component: HardwareComponent, binding: Binding) -> int:
        tensor = self.tensors.get(binding.tensor)
        if tensor is None or set(binding.init_ranks) != set(tensor.ranks):
            what = f"{self.name}: {component.name} merges {binding.tensor} {', '.join(binding.init_ranks)}"
            message = f"{what}, which are not its declared ranks"
            raise Refused(message, "merge tensors before they are split", code="unsupported-binding")
        radix = component.number("comparator_radix") or float("inf")
        inputs = component.number("inputs")
        pipelined = inputs is not None and inputs != float("inf")
        return merge_steps(tensor, binding.init_ranks, binding.final_ranks, radix, pipelined)
