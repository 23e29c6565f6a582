"""A slow, obvious enumerator of a TeAAL spec's traffic: dicts for fibers, nested loops, one access at a time.

It reads the YAML by itself and shares nothing with the package. `metrics` gives numbers in TeAAL's shape.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict

from tests.sparse.traffic.oracle_buffers import Buffers
from tests.sparse.traffic.oracle_parts import components, expression, fuse, merges, partition, tree


class Run:
    """One Einsum: `run` goes through its loops, noting accesses in `events` as they happen, and counts."""

    def __init__(self, spec, symbols, einsum, tensors, sizes, walked, replacement):
        self.spec, self.einsum, self.sizes, self.walked = spec, einsum, sizes, walked
        self.replacement = replacement
        text = next(e for e in spec["einsum"]["expressions"] if e.split("[")[0].strip() == einsum)
        _, out_ranks, self.inputs, self.take = expression(text)
        mapping = spec["mapping"]
        self.loops = mapping["loop-order"][einsum]
        rules = mapping.get("partitioning", {}).get(einsum, {})
        self.trees, self.ranks = {}, {}
        for tensor, ranks in self.inputs:
            declared = spec["einsum"]["declaration"][tensor]
            assert ranks == declared
            stored = mapping["rank-order"].get(tensor, declared)
            moved = {tuple(p[declared.index(r)] for r in stored): v for p, v in tensors[tensor].items()}
            ranks, moved = partition(moved, list(stored), rules, symbols)
            order = sorted(range(len(ranks)), key=lambda i, ranks=ranks: self.level(ranks[i]))
            self.ranks[tensor] = [ranks[i] for i in order]
            self.trees[tensor] = tree(moved, order)
        ranks, _ = partition({}, list(mapping["rank-order"].get(einsum, out_ranks)), rules, symbols)
        self.ranks[einsum] = sorted(ranks, key=self.level)
        self.out = {}
        self.events = defaultdict(list)  # (tensor, rank, trace) -> [(stamp, prefix, place, write, when)]
        self.count, self.isect, self.iters = defaultdict(int), defaultdict(int), defaultdict(int)
        self.components = components(spec, einsum)
        self.buffers = Buffers(self)
        self.places, self.last, self.value, self.clock = {}, None, None, 0
        self.seen = {key: set() for key in self.buffers.eager}

    def level(self, rank):
        """The loop a rank belongs to: itself, or the innermost flattened one that holds it."""
        if rank in self.loops:
            return self.loops.index(rank)
        bare = rank.rstrip("0123456789")
        for i, loop in reversed(list(enumerate(self.loops))):
            if len(loop.rstrip("0123456789")) > 1 and bare in loop:
                return i
        raise KeyError(rank)

    def run(self):
        self.loop(0, dict(self.trees), self.out, (), {})
        return self

    def note(self, tensor, rank, trace, stamp, prefix, place, write=False):
        self.clock += 1
        self.events[tensor, rank, trace].append((stamp, prefix, place, write, self.clock))

    def prefix(self, tensor, coords, upto):
        """The coordinates of a tensor's ranks above loop `upto`."""
        return tuple(coords[r] for r in self.ranks[tensor] if r in coords and self.level(r) < upto)

    # ------------------------------------------------------------ loops

    def loop(self, depth, at, out, stamp, coords):
        if depth == len(self.loops):
            self.compute(at)
            return
        rank = self.loops[depth]
        self.eager_reads(depth, at, out, stamp, coords)
        drivers = [t for t, _ in self.inputs if rank in self.ranks[t]]
        own = self.ranks[self.einsum]
        has_out = any(self.level(r) == depth for r in own)
        for place, (coord, children) in enumerate(self.coiterate(depth, rank, drivers, at, stamp, coords)):
            here, inner = (*stamp, place), {**coords, rank: coord}
            self.iters[rank] += 1
            for t in (t for t, _ in self.inputs if t in children):
                if coord in self.places[depth][t]:
                    where = self.prefix(t, coords, depth)
                    self.note(t, rank, "payload", here, where, self.places[depth][t][coord])
            below = self.looked_up(depth, rank, coord, {**at, **children})
            if below is None:
                continue
            if has_out:
                self.populate(depth, rank, coord, below, out, here, inner)
            else:
                self.loop(depth + 1, below, out, here, inner)
        self.eager_writes(depth, out, stamp, coords)

    def looked_up(self, depth, rank, coord, at):
        """Tensors with a part of a flattened rank are looked up; None where one is missing."""
        for t, _ in self.inputs:
            if rank not in self.ranks[t] and any(self.level(r) == depth for r in self.ranks[t]):
                if coord[1] not in at[t]:
                    return None
                at = {**at, t: at[t][coord[1]]}
        return at

    def populate(self, depth, rank, coord, below, out, here, inner):
        """Go on below an element of the output, which is made if it is new and dropped if it stays empty."""
        key = coord[0] if isinstance(coord, tuple) else coord
        where = self.prefix(self.einsum, inner, depth)
        if key in out:
            self.note(self.einsum, rank, "out", here, where, key)
        if self.level(self.ranks[self.einsum][-1]) == depth:
            self.value = out.get(key)
            self.loop(depth + 1, below, None, here, inner)
            self.last = here
            if self.value is not None:
                out[key] = self.value
        else:
            child = out.setdefault(key, {})
            self.loop(depth + 1, below, child, here, inner)
            if not child:
                del out[key]
        if key in out:
            self.note(self.einsum, rank, "out", here, where, key, True)

    def compute(self, at):
        factors = [at[t] for t, _ in self.inputs]
        if self.take is not None:
            self.value = factors[self.take]
            return
        self.count["mul"] += len(factors) - 1
        if self.value is not None:
            self.count["add"] += 1
        self.value = math.prod(factors) + (self.value or 0)

    # ------------------------------------------------------------ co-iteration

    def coiterate(self, depth, rank, drivers, at, stamp, coords):
        """The coordinates to go on with and each tensor's child, one by one; what is read is noted."""
        fibers = {t: self.fiber(t, rank, at[t]) for t in drivers}
        order = {t: sorted(fibers[t]) for t in drivers}
        self.places[depth] = {t: {c: i for i, c in enumerate(order[t])} for t in drivers}

        def reads(t, place, step):
            self.note(t, rank, "coord", (*stamp, step), self.prefix(t, coords, depth), place)

        leader = self.leader(rank)
        if len(drivers) == 1:
            match = self.alone(drivers[0], order, reads)
        elif leader:
            match = self.led(depth, rank, leader, drivers, fibers, order, at, reads)
        elif len(drivers) > 2:
            match = self.nested(drivers, order, reads)
        else:
            match = self.two_fingers(rank, drivers, order, reads)
        for c in match:
            yield c, {t: fibers[t][c] for t in drivers}

    def alone(self, tensor, order, reads):
        for i, c in enumerate(order[tensor]):
            reads(tensor, i, i)
            yield c

    def fiber(self, tensor, rank, fiber):
        if rank not in self.walked.get(tensor, ()):
            return fiber
        return {c: fiber.get(c, {}) for c in range(self.sizes[rank])}

    def led(self, depth, rank, leader, drivers, fibers, order, at, reads):
        """All coordinates of the leader; the follower's are looked up, at their place among the stored: one
        that is not stored at the place where the search for it ends."""
        other = next(t for t in drivers if t != leader)
        stored = sorted(at[other])
        self.places[depth][other] = {c: sum(s < c for s in stored) for c in fibers[other]}
        self.isect[rank] += len(order[leader])
        for i, c in enumerate(order[leader]):
            reads(leader, i, i)
            if c in at[other]:
                reads(other, stored.index(c), i)
            if c in fibers[other]:
                yield c

    def nested(self, drivers, order, reads):
        """`a & (b & c)`, each asked for one coordinate after the other; what was asked for is read in order,
        before the loop goes on with a coordinate that is not below it."""
        asked = []

        def each(n):
            for place, c in enumerate(order[drivers[n]]):
                asked.append((c, n, place))
                yield c

        def both(one, other):
            x, y = next(one, None), next(other, None)
            while x is not None and y is not None:
                if x == y:
                    yield x
                    x, y = next(one, None), next(other, None)
                elif x < y:
                    x = next(one, None)
                else:
                    y = next(other, None)

        def note(most):
            for read in sorted(a for a in asked if a[0] <= most):
                asked.remove(read)
                reads(drivers[read[1]], read[2], read[0])

        match = each(len(drivers) - 1)
        for n in reversed(range(len(drivers) - 1)):
            match = both(each(n), match)
        for c in match:
            note(c)
            yield c
        note(math.inf)

    def two_fingers(self, rank, drivers, order, reads):
        (first, second), i, j, step, current = drivers, 0, 0, 0, None
        a, b = order[first], order[second]
        skips = self.intersector(rank) == "skip-ahead"
        while i < len(a) and j < len(b):
            side = 2 if a[i] == b[j] else int(a[i] > b[j])
            if side == 2 or not skips or side != current:
                self.isect[rank] += 1
            current = side
            if side != 1:
                reads(first, i, step)
            if side != 0:
                reads(second, j, step)
            if side == 2:
                yield a[i]
            i, j, step = i + (side != 1), j + (side != 0), step + 1
        if i < len(a):
            reads(first, i, step)
        if j < len(b):
            reads(second, j, step)

    def intersector(self, rank):
        for c in self.components.values():
            if c["class"] == "Intersector" and any(b["rank"] == rank for b in c["bindings"]):
                return c["attributes"]["type"]
        return None

    def leader(self, rank):
        for c in self.components.values():
            if c["class"] == "Intersector" and c["attributes"]["type"] == "leader-follower":
                for b in c["bindings"]:
                    if b["rank"] == rank:
                        return b["leader"]
        return None

    # ------------------------------------------------------------ eager subtrees

    def eager_reads(self, depth, at, out, stamp, coords):
        """Before the loop that enters a subtree for the first time in its window, all of it is read."""
        for (tensor, root), evict in self.buffers.eager.items():
            if self.level(root) != depth:
                continue
            own = tuple(coords[r] for r in self.loops[evict:depth] if r in self.ranks[tensor])
            if (stamp[:evict], own) in self.seen[tensor, root]:
                continue
            self.seen[tensor, root].add((stamp[:evict], own))
            fiber = out if tensor == self.einsum else at[tensor]
            self.subtree(tensor, root, fiber, stamp, self.prefix(tensor, coords, depth), False)

    def eager_writes(self, depth, out, stamp, coords):
        """After the loop below the rank that holds the subtree's root, all of it is written; it counts to
        the window of the last innermost iteration of the output's loops."""
        for tensor, root in self.buffers.eager:
            if tensor != self.einsum or out is None:
                continue
            ranks = self.ranks[tensor]
            n = ranks.index(root)
            if depth == (self.level(ranks[n - 1]) + 1 if n else 0):
                stamps = stamp if self.last is None else self.last
                self.subtree(tensor, root, out, stamps, self.prefix(tensor, coords, depth), True)

    def subtree(self, tensor, root, fiber, stamp, prefix, write):
        ranks = self.ranks[tensor]

        def visit(node, n, prefix):
            node = self.fiber(tensor, ranks[n], node)
            for place, coord in enumerate(sorted(node)):
                self.note(tensor, ranks[n], ("eager", root), stamp, prefix, place, write)
                if n + 1 < len(ranks):
                    visit(node[coord], n + 1, (*prefix, coord))

        visit(fiber, ranks.index(root), prefix)

    def result(self):
        """The output over its declared ranks: the innermost part of each tells its coordinate."""
        ranks = self.ranks[self.einsum]
        flat = {}

        def visit(node, n, coords):
            if n == len(ranks):
                flat[coords] = node
                return
            for c, child in node.items():
                visit(child, n + 1, (*coords, c))

        visit(self.out, 0, ())
        innermost = {}
        for i, r in enumerate(ranks):
            name, digit = re.match(r"(.*?)(\d*)$", r).groups()
            if self.spec["einsum"]["declaration"][self.einsum].count(r):
                name, digit = r, ""
            if name not in innermost or digit < innermost[name][0]:
                innermost[name] = digit, i
        declared = self.spec["einsum"]["declaration"][self.einsum]
        return {tuple(p[innermost[r][1]] for r in declared): v for p, v in flat.items()}


def metrics(spec, symbols, tensors, sizes, walked=None, replacement="lru"):
    """All numbers of a cascade. `tensors`: name -> {coordinates in declared order: value}; `replacement`:
    what a full cache drops, the line used least recently or the one used again last (`optimal`)."""
    tensors, found = dict(tensors), {}
    for text in spec["einsum"]["expressions"]:
        einsum = text.split("[")[0].strip()
        run = Run(spec, symbols, einsum, tensors, sizes, walked or {}, replacement).run()
        found[einsum] = {**run.buffers.memories(), **units(spec, run, tensors)}
        tensors[einsum] = run.result()
    time = None
    blocks = fuse(spec)
    for block in blocks:
        sums = {}
        for e in block:
            for name, values in found[e].items():
                sums[name] = sums[name] + values["time"] if name in sums else values["time"]
        busiest = max(sums.values(), default=0.0)
        time = busiest if time is None else time + busiest
    return {**found, "blocks": blocks, "time": time}


def units(spec, run, tensors):
    """Counts of everything that is not a memory."""
    found = {}
    for name, c in run.components.items():
        rate = c["clock"] * c["instances"]
        if c["class"] == "Compute":
            counts = {b["op"]: run.count[b["op"]] for b in c["bindings"]}
        elif c["class"] == "Intersector":
            counts = {"intersect": sum(run.isect[b["rank"]] for b in c["bindings"])}
        elif c["class"] == "Sequencer":
            counts = {b["rank"]: run.iters[b["rank"]] for b in c["bindings"]}
        elif c["class"] == "Merger":
            counts = {}
            for b in c["bindings"]:
                declared = spec["einsum"]["declaration"][b["tensor"]]
                steps = merges(tensors[b["tensor"]], declared, b, c["attributes"])
                counts[b["tensor"] + "_" + "".join(b["init-ranks"])] = steps
        else:
            continue
        found[name] = {**counts, "time": sum(counts.values()) / rate}
    return found
