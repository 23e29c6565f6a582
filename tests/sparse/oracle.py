"""A plain interpreter of one Einsum on fibertrees, loop by loop: slow, obvious, the executor's referee.

A tensor is the list of its nonzeros that are still in play, each a dictionary of the coordinates that are not
bound yet; the fiber of a rank holds their distinct coordinates. Output fibers are dictionaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import product as all_of
from math import inf, prod
from operator import add, mul

import numpy as np

from polymodel.spec.teaal.records import (
    EinsumMapping,
    Expression,
    IndexedTensor,
    Partition,
    Stamp,
    Take,
    TeaalSpec,
)
from tests.sparse.referee import Coord, Nonzeros, Referee, filled, haloed, slices, tiling, two_finger

WORDS: dict[str, Callable] = {"mul": mul, "add": add, "min": min, "max": max}


class Interpreter:
    """One Einsum under its mapping. `tensors`: arrays with one axis per declared rank."""

    def __init__(
        self,
        expression: Expression,
        mapping: EinsumMapping,
        tensors: dict[str, np.ndarray],
        sizes: dict[str, int],
        declaration: dict[str, tuple[str, ...]],
    ) -> None:
        self.expression, self.mapping, self.sizes = expression, mapping, sizes
        self.absent = {"add": 0, "min": inf, "max": -inf}[expression.semiring.reduce]
        self.seen = Referee()
        self.names: list[str] = []
        self.splits: dict[str, tuple[str, object]] = {}
        self.parent: dict[str, str] = {}
        self.flat: dict[str, tuple[str, int]] = {}
        self.slices: dict[str, dict[int, int]] = {}
        state = [self._load(o, tensors[o.tensor]) for o in expression.operands]
        self.affine = {
            (n, f"={k}"): i.terms
            for n, o in zip(self.names, expression.operands, strict=True)
            for k, i in enumerate(o.indices)
            if i.variable is None
        }
        self.chains = {r: [r] for r in sizes}
        self.as_leader: dict[str, Partition] = {}
        self.cuts: dict[str, dict[str, Callable[[int], int]]] = {}
        self.followed: dict[str, set[str]] = {}
        followers = [p for p in mapping.partitioning if p.directives[0].kind == "follow"]
        for partition in [p for p in mapping.partitioning if p not in followers]:
            state = self._partition(partition, state)
        for partition in followers:
            state = self._follow(partition, state, declaration)
        self.output: dict = {}
        self._loop(0, state, self.output, {}, {})
        self._collect(self.output, ())

    def _load(self, operand: IndexedTensor, array: np.ndarray) -> Nonzeros:
        count = sum(n.split("#")[0] == operand.tensor for n in self.names) + 1
        self.names.append(operand.tensor + (f"#{count}" if count > 1 else ""))
        ranks = [i.variable.upper() if i.variable else f"={k}" for k, i in enumerate(operand.indices)]
        points = [
            (dict(zip(ranks, map(int, where), strict=True)), array[where].item())
            for where in all_of(*map(range, array.shape))
            if array[where] != self.absent
        ]
        return Nonzeros(self.names[-1], points)

    def _partition(self, partition, state: list[Nonzeros]) -> list[Nonzeros]:
        directives = partition.directives
        if directives[0].kind == "flatten":
            return self._flatten(partition.ranks, state)
        (rank,) = partition.ranks
        parts = [f"{rank}{i}" for i in range(len(directives), -1, -1)]
        for chain in self.chains.values():
            if rank in chain:
                at = chain.index(rank)
                chain[at : at + 1] = parts
        steps = [d for d in directives if d.kind in ("uniform_shape", "nway_shape")]
        size = prod(self.sizes[r] for r in [rank] if r in self.sizes)
        cuts: dict[str, Callable[[int], int]] = {}
        if steps and all(d.kind == "nway_shape" for d in steps):
            # Each one splits the tiles of the one before it.
            finer: Callable[[int], int] = lambda c: c  # noqa: E731  # a chain of tilings is told by functions
            for name, d in zip(reversed(parts[len(directives) - len(steps) : -1]), directives, strict=False):
                finer = tiling((size - 1) // d.size + 1, finer)
                cuts[name] = finer
        else:
            for name, d in zip(parts, directives, strict=False):
                if d.kind == "uniform_shape":
                    cuts[name] = tiling(d.size, lambda c: c)
        for name, d in zip(parts, directives, strict=False):
            if d.kind == "uniform_slice":
                leads = next(k for k, n in enumerate(self.names) if rank in self._declares(n))
                table = slices(state[leads], rank, d.size)
                cuts[name] = lambda c, t=table: t.get(c, 0)
            if d.kind == "uniform_occupancy":
                self.splits[name] = (d.leader, d.size)
                self.parent[name] = parts[-1]
        self.cuts[rank] = cuts
        found = []
        for tensor in state:
            points = []
            for p, v in tensor.points:
                q = dict(p)
                if rank in q:
                    c = q.pop(rank)
                    q.update({name: cut(c) for name, cut in cuts.items()})
                    q[parts[-1]] = c
                points.append((q, v))
            found.append(Nonzeros(tensor.name, points))
        return found

    def _follow(self, partition, state: list[Nonzeros], declaration: dict) -> list[Nonzeros]:
        """A rank that follows: split as its leader, or, of index math, by what each of its tiles reaches."""
        (rank,), leader = partition.ranks, partition.directives[0].leader
        led = next(p for p in self.mapping.partitioning if p.ranks == (leader,))
        if rank in self.chains and not any(rank in declaration[n.split("#")[0]] for n, _ in self.affine):
            self.as_leader[rank] = replace(led, ranks=(rank,))
            return self._partition(self.as_leader[rank], state)
        found = []
        for tensor in state:
            ours = declaration[tensor.name.split("#")[0]]
            points = tensor.points
            for (name, index), terms in self.affine.items():
                if name == tensor.name and ours[int(index[1:])] == rank:
                    points = haloed(points, index, terms, leader, self.cuts[leader], self.sizes)
                    self.followed.setdefault(name, set()).update(self.cuts[leader])
            found.append(Nonzeros(tensor.name, points))
        return found

    def _flatten(self, ranks: tuple[str, ...], state: list[Nonzeros]) -> list[Nonzeros]:
        name = "".join(ranks)
        self.chains[name] = [name]
        for k, r in enumerate(ranks):
            self.flat[r] = (name, k)
        found = []
        for tensor in state:
            points = []
            for p, v in tensor.points:
                q = dict(p)
                if all(r in q for r in ranks):
                    q[name] = tuple(q.pop(r) for r in ranks)
                points.append((q, v))
            found.append(Nonzeros(tensor.name, points))
        return found

    def _loop(self, depth: int, state: list[Nonzeros | None], out, bound: dict, pos: dict) -> bool:
        """Run the loops from `depth` on; whether anything was computed."""
        order = self.mapping.loop_order
        if depth == len(order):
            return self._compute(state, out, bound, pos)
        rank = order[depth]
        dense = not any(t is not None and self._takes(t, rank, bound) for t in state)
        driver = self._dense(rank, state, bound) if dense else self._driver(rank, state, bound)
        populated = any(rank in self.chains[i.variable.upper()] for i in self.expression.output.indices)
        if not populated:
            for n, (coord, after) in enumerate(driver):
                self._body(depth, rank, n, coord, after, out, bound, pos)
            return True
        self._populate(depth, rank, driver, out, bound, pos)
        return True

    def _body(self, depth: int, rank: str, n: int, coord: Coord, after, out, bound: dict, pos: dict) -> None:
        self.seen.iterations[rank] += 1
        bound = {**bound, rank: coord}
        after = self._look_up(rank, coord, after)
        for variable in self.expression.output.indices:
            name = self.chains[variable.variable.upper()][-1]
            if name in self.flat and self.chains[self.flat[name][0]][-1] == rank:
                out = out.setdefault(coord[self.flat[name][1]], {})
        self._loop(depth + 1, after, out, bound, {**pos, rank: n})

    def _populate(self, depth: int, rank: str, driver: Iterator, out: dict, bound: dict, pos: dict) -> None:
        inserting, inserted, before = False, [], None
        for n, (coord, after) in enumerate(driver):
            if n == 0:
                inserting = bool(out) and coord < max(out)
            if inserting:
                self.seen.reads[rank] += sum((before is None or before < c) and c < coord for c in out)
            new = coord not in out
            if not new:
                self.seen.reads[rank] += 1
            payload = out.setdefault(coord, {})
            self._body(depth, rank, n, coord, after, payload, bound, pos)
            if new and not filled(payload):
                del out[coord]
            else:
                self.seen.writes[rank] += 1
                if new and inserting:
                    inserted.append(coord)
            before = coord
        if inserted:
            moved = sum(c >= inserted[0] for c in out)
            self.seen.reads[rank] += moved
            self.seen.writes[rank] += moved

    def _takes(self, tensor: Nonzeros, rank: str, bound: dict) -> bool:
        """Whether a tensor co-iterates at a loop."""
        name = tensor.name
        if rank in self.splits:
            return self.parent[rank] in self.ranks_of(name)
        return rank in self.ranks_of(name) or self._projected(name, rank, bound) is not None

    def _declares(self, name: str) -> set[str]:
        operand = self.expression.operands[self.names.index(name)]
        return {i.variable.upper() for i in operand.indices if i.variable}

    def ranks_of(self, name: str) -> set[str]:
        """The loop ranks that a tensor has, by the declaration and the partitioning alone."""
        found = self._declares(name)
        for p in (self.as_leader.get(p.ranks[0], p) for p in self.mapping.partitioning):
            if p.directives[0].kind == "flatten":
                if set(p.ranks) <= found:
                    found = found - set(p.ranks) | {"".join(p.ranks)}
            elif p.ranks[0] in found:
                names = {f"{p.ranks[0]}{i}" for i in range(len(p.directives) + 1)}
                found = found - set(p.ranks) | names
        return found | self.followed.get(name, set())

    def _projected(self, name: str, rank: str, bound: dict) -> str | None:
        """The index of a tensor that this loop is the last variable of."""
        order = list(self.mapping.loop_order)
        for (tensor, index), terms in self.affine.items():
            if (
                tensor == name
                and max((self.chains[v.upper()][-1] for v, _ in terms), key=order.index) == rank
            ):
                return index
        return None

    def _driver(self, rank: str, state: list[Nonzeros | None], bound: dict) -> Iterator:
        at = 0
        streams = []
        for term in self.expression.terms:
            slots = list(range(at, at + sum(isinstance(f, IndexedTensor) for f in term.factors)))
            at += len(slots)
            taking = [s for s in slots if state[s] is not None and self._takes(state[s], rank, bound)]
            if any(state[s] is None for s in slots):
                continue
            alone = len(taking) == 1 and len(self.expression.terms) == 1
            stream = self._co_iterate(rank, taking, state, bound, alone)
            streams.append((slots, stream))
        if len(self.expression.terms) == 1:
            for coord, parts in streams[0][1] if streams else ():
                yield coord, [parts.get(s, state[s]) for s in range(len(state))]
            return
        merged: dict[Coord, list[Nonzeros | None]] = {}
        for slots, stream in streams:
            for coord, parts in stream:
                after = merged.setdefault(coord, [None] * len(state))
                for s in slots:
                    after[s] = parts.get(s, state[s])
        for coord in sorted(merged):
            yield coord, merged[coord]

    def _co_iterate(self, rank: str, slots: list[int], state, bound: dict, alone: bool) -> Iterator:
        """The nested two-finger intersection of some tensors, every coordinate counted as it is read."""
        table = self.seen.driven if alone else self.seen.intersected
        counts = table.setdefault(rank, Counter())
        fibers = {s: self._fiber(rank, s, slots, state, bound) for s in slots}
        for s in slots:
            counts[self.names[s]] += 0

        def read(s: int) -> Iterator:
            for coord, rest in fibers[s]:
                counts[self.names[s]] += 1
                yield coord, {s: rest}

        stream = read(slots[-1])
        for s in reversed(slots[:-1]):
            stream = two_finger(read(s), stream)
        return stream

    def _fiber(self, rank: str, s: int, slots: list[int], state, bound: dict) -> list:
        tensor = state[s]
        if rank in self.splits:
            leader, count = self.splits[rank]
            base = self.parent[rank]
            led = next(k for k in slots if self.names[k] == leader)
            coords = state[led].fiber(base)
            starts = [coords[i] for i in range(0, len(coords), count)]
            if starts:
                starts[0] = (0,) * len(starts[0]) if isinstance(starts[0], tuple) else 0
            found = []
            for start, end in zip(starts, [*starts[1:], None], strict=False):
                inside = [
                    (p, v) for p, v in tensor.points if start <= p[base] and not (end and p[base] >= end)
                ]
                if inside:
                    found.append((start, Nonzeros(tensor.name, inside)))
            return found
        index = self._projected(tensor.name, rank, bound)
        if index is None or rank in self.ranks_of(tensor.name):
            return [(c, tensor.at(rank, c)) for c in tensor.fiber(rank)]
        terms = {v.upper(): f for v, f in self.affine[tensor.name, index]}
        (base,) = (v for v in terms if self.chains[v][-1] == rank)
        offset = sum(f * bound[self.chains[v][-1]] for v, f in terms.items() if v != base)
        places = {offset + terms[base] * c: c for c in range(self.sizes[base])}
        tiles = self.cuts.get(base, {})
        return [
            (places[c], tensor.at(index, c))
            for c in tensor.fiber(index)
            if c in places and all(cut(places[c]) == bound[part] for part, cut in tiles.items())
        ]

    def _dense(self, rank: str, state: list, bound: dict) -> Iterator:
        base = next(r for r, chain in self.chains.items() if rank in chain)
        chain = self.chains[base]
        partitioning = (self.as_leader.get(p.ranks[0], p) for p in self.mapping.partitioning)
        p = next((p for p in partitioning if p.ranks == (base,)), None)
        steps = [] if p is None else [d.size for d in p.directives]
        if p is not None and p.directives[0].kind == "nway_shape":
            steps = [(self.sizes[base] - 1) // n + 1 for n in reversed(steps)]
        at = chain.index(rank)
        start = 0 if at == 0 else bound[chain[at - 1]]
        stop = self.sizes[base] if at == 0 else min(start + steps[at - 1], self.sizes[base])
        return ((c, state) for c in range(start, stop, [*steps, 1][at]))

    def _look_up(self, rank: str, coord: Coord, after: list) -> list:
        found = list(after)
        for s, tensor in enumerate(found):
            if tensor is None:
                continue
            for part, (flat, k) in self.flat.items():
                if self.chains[flat][-1] == rank and part in self.ranks_of(tensor.name):
                    self.seen.looked.setdefault(rank, Counter())[tensor.name] += 1
                    found[s] = found[s].at(part, coord[k])
        return found

    def _compute(self, state: list[Nonzeros | None], out: dict, bound: dict, pos: dict) -> bool:
        at, total, terms = 0, self.absent, 0
        times, plus = WORDS[self.expression.semiring.map], WORDS[self.expression.semiring.reduce]
        for term in self.expression.terms:
            count = sum(isinstance(f, IndexedTensor) for f in term.factors)
            mine = state[at : at + count]
            at += count
            if any(t is None or not t.points for t in mine):
                continue
            values, terms = [t.points[0][1] for t in mine], terms + 1
            if isinstance(term, Take):
                total = values[term.which]
                continue
            numbers = [f for f in term.factors if not isinstance(f, IndexedTensor)]
            total = plus(total, reduce(times, [*values, *numbers]))
            self.seen.multiplies += len(values) + len(numbers) - 1
        if not terms:
            return False
        self.seen.term_adds += terms - 1
        self.seen.updates += 1
        assign = any(isinstance(t, Take) for t in self.expression.terms)
        self.seen.adds += "value" in out and not assign
        out["value"] = total if assign else plus(out.get("value", self.absent), total)
        if self.mapping.spacetime is not None:
            self.seen.stamps.append(
                tuple(
                    tuple(self._stamp(s, bound, pos) for s in which)
                    for which in (self.mapping.spacetime.space, self.mapping.spacetime.time)
                )
            )
        return True

    def _stamp(self, stamp: Stamp, bound: dict, pos: dict):
        return pos[stamp.rank] if stamp.style == "pos" else bound[stamp.rank]

    def _collect(self, out: dict, path: tuple) -> None:
        """Results by declared rank: the last parts of the ranks, in the order of the output's indices."""
        if "value" in out:
            self.seen.result[self._declared(path)] = out["value"]
            return
        for coord, below in out.items():
            self._collect(below, (*path, coord))

    def _declared(self, path: tuple) -> tuple[int, ...]:
        names: list[str] = []
        wanted = [i.variable.upper() for i in self.expression.output.indices]
        for rank in self.mapping.loop_order:
            if any(rank in self.chains[w] for w in wanted):
                names.append(rank)
            for w in wanted:
                last = self.chains[w][-1]
                if last in self.flat and self.chains[self.flat[last][0]][-1] == rank:
                    names.append(last)
        where = dict(zip(names, path, strict=True))
        return tuple(where[self.chains[w][-1]] for w in wanted)


def interpret(teaal: TeaalSpec, tensors: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, Referee]:
    """Every Einsum of a cascade, in order, by name."""
    known = dict(tensors)
    found: dict[str, Referee] = {}
    for expression in teaal.expressions:
        mapping = next(m for m in teaal.mappings if m.einsum == expression.name)
        found[expression.name] = Interpreter(expression, mapping, known, sizes, teaal.declaration).seen
        absent = {"add": 0.0, "min": inf, "max": -inf}[expression.semiring.reduce]
        made = np.full([sizes[i.variable.upper()] for i in expression.output.indices], absent)
        for where, value in found[expression.name].result.items():
            made[where] = value
        known[expression.name] = made
    return found
