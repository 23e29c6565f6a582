"""The values of terms at the tile sizes of a template: one factor per group of rank variables."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from polymodel.mapper.held_generations import resident_generations
from polymodel.mapper.pricing import END, INSTANCES, NONE, OPERATIONS, Fans, Part, Term, Transfers, VisitStep
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import ANY, Template
from polymodel.mapper.ties import Cuts, Role, cuts_of, is_busiest, of_busiest, of_instances
from polymodel.mapper.tile_chains import (
    TileChains,
    beyond,
    prod_of,
    require_combinable,
    spread_after,
    trips,
    whole_chain,
)
from polymodel.mapper.windows import (
    POINTS,
    EqualRanges,
    RankWindow,
    Runs,
    Steps,
    Tie,
    Tiles,
    TwoImages,
    kept_table,
    read_together,
    sliding_elements,
    union_elements,
    window_elements,
)

Array = Any
Joint = tuple[
    list[Tie], list[RankWindow | TwoImages], set[int]
]  # ties, windows, and the bundles in any of them


class Factors:
    """The factor of each group of bundles in each term, as arrays over the group's candidates."""

    def __init__(self, space: EinsumSpace, template: Template, found: tuple[TileChains, ...]) -> None:
        self.space = space
        self.positions = [spread_after(template, f.below) for f in space.fanouts]
        self.bundle = {v: b for b, members in enumerate(space.bundles) for v in members}
        self.chains = [*found]
        require_combinable(space, found)
        for w in (w for o in space.operands for w in o.windows if w.held and w.r not in self.bundle):
            self.bundle[w.r] = len(self.chains)
            self.chains.append(whole_chain(w.held, found[self.bundle[w.p]]))
        self.overlapping = frozenset(i for i, f in enumerate(space.fanouts) if f.overlapping)
        self._jointly: dict[tuple[int, tuple[int, ...]], Joint] = {}
        self._trips: dict[tuple[int, int], Array] = {}
        self._uneven: dict[tuple[int, int, Fans, Fans], Array] = {}
        self._cut: dict[tuple[int, tuple[Term, ...]], tuple[list[tuple[Cuts, ...]], Array]] = {}

    def of(self, term: Part, group: tuple[int, ...]) -> Array:
        """The factor [n1, n2, ...] for the candidates of the group's bundles."""
        if isinstance(term, Transfers):
            return self.of(term.moved, group) / self.of(term.size, group)
        if term.operand == INSTANCES:
            each = (_along(self._instances(b, term.spread), k, len(group)) for k, b in enumerate(group))
            return np.broadcast_to(prod(each, start=np.ones(1)), tuple(self.chains[b].count for b in group))
        operand = self.space.operands[term.operand] if term.operand != OPERATIONS else None
        ties, windows, within = self._joint(term.operand, group)
        if len(group) == 1 and not within:
            return self._factor(term, group[0], operand)
        result: Array = np.ones(1)
        for t in ties:
            result = result * self._tied(term, t, operand, group)
        for axis, b in enumerate(group):
            if b in within:
                continue
            factor = self._factor(term, b, operand)
            result = result * _along(factor, axis, len(group))
        for w in windows:
            # With a loop over the first window, only what is live counts; otherwise the whole tile.
            into = term.into if operand and w == operand.windows[0] else None
            if isinstance(w, TwoImages):
                result = result * self._imaged(term, w, group)
                continue
            if not w.held:
                result = result * self._windowed(term, w, group, into)
                continue
            result = result * self._neighbours(term, w, group, into)
        if operand is not None and operand.boxes is not None and within:
            result = result * self._boxed(term, operand, group)
        return np.broadcast_to(result, tuple(self.chains[b].count for b in group))

    def _joint(self, number: int, group: tuple[int, ...]) -> Joint:
        """The ties and windows of an operand that connect variables of a group."""
        if (number, group) not in self._jointly:
            ties = [t for t in self.space.ties if self.bundle[t.u] in group]
            tied = {v for t in ties for v in t.both}
            every = self.space.operands[number].windows if number != OPERATIONS else ()
            windows = [w for w in every if self.bundle[w.p] in group and w.p not in tied]
            within = {self.bundle[v] for v in (*tied, *(x for w in windows for x in (w.p, w.r)))}
            boxes = self.space.operands[number].boxes if number != OPERATIONS else None
            together = {self.bundle[v] for v in boxes.variables if v >= 0} if boxes is not None else set()
            within |= together & {*group}
            self._jointly[number, group] = ties, windows, within
        return self._jointly[number, group]

    def _factor(self, term: Term, b: int, operand: Operand | None) -> Array:
        """The factor of one bundle that is in no window or pair."""
        variable = self.space.bundles[b][0]
        if operand is None:
            return self._single(term, b, False)
        if variable == operand.first or (term.of_one_generation and variable == operand.over):
            return np.ones(self.chains[b].count)
        if variable == operand.behind and not term.each:
            return self._generations(term, b, operand)
        return self._single(term, b, variable in operand.alone)

    def _single(self, term: Term, v: int, alone: bool) -> Array:
        c = self.chains[v]
        if term.tile:
            return self._tile(v, term.level if term.into is None else term.into, alone)
        if term.each:
            together = self._instances(v, term.union & self.overlapping if alone else NONE)
            return self._tile(v, term.level, alone) * together
        if c.shared is not None:
            return self._unevenly(term, v, alone)
        result = np.full(c.count, float(c.extent)) if alone else self._count(v, term.level)
        for level in range(term.since + 1, term.level + 1) if term.since >= 0 and not alone else ():
            result = result / self._steps(level, v)[1]
        if term.step is not None:
            inside, share, _ = self._moved(term, term.step, v)
            result = result * ((inside == 1) if alone else share)
        divided = term.split | (term.own if alone else NONE) | (NONE if alone else term.union)
        if divided:
            result = result / prod(c.spread[f] for f in sorted(divided))
        if term.spread and not alone:
            result = result * prod(c.spread[f] for f in sorted(term.spread))
        repeated = term.repeated(v)
        return result * self._instances(v, repeated) if repeated else result

    def _generations(self, term: Term, v: int, operand: Operand) -> Array:
        """Return the factor of the variable of the operand's recurrence: tiles hold generations that they
        read and do not produce (the first tile none). It is not spread over instances."""
        assert operand.carried is not None
        c, carried = self.chains[v], operand.carried
        made = operand.output or carried.now > 0
        if operand.output and not term.tile and not term.behind:
            return np.full(c.count, float(c.extent))
        if term.level == END:
            made_there = 0 if operand.output else carried.now * c.extent
            return np.full(c.count, float(carried.reads(c.extent) + made_there))
        levels = c.tiles[term.level : term.level + 1] if c.even else c.tiles[: term.level + 1]
        chains, where = np.unique(levels, axis=1, return_inverse=True)
        every = [resident_generations(carried.back, c.extent, tuple(x), made) for x in chains.T.tolist()]
        which = 0 if term.tile else 1 if operand.output else 2
        return np.array([one[which] for one in every], dtype=float)[where.reshape(-1)]

    def _boxed(self, term: Term, operand: Operand, group: tuple[int, ...]) -> Array:
        """The factor of all variables that decide together which boxes are touched: elements of the largest
        tile, or over all tiles of what is read and not made there. No other tiles than those that keep the
        order of generations count."""
        boxes = operand.boxes
        assert boxes is not None
        if operand.output and not term.tile and not term.behind:
            return np.full((1,) * len(group), float(boxes.made))
        if term.level == END:
            return np.full((1,) * len(group), float(boxes.reads))
        there = [v for v in boxes.variables if v >= 0]
        each = {v: self._sizes(self.bundle[v], term.level) for v in there}
        shape = [len(each[v][0]) for v in there]
        along = {v: _along(np.array(each[v][0]), k, len(there))[None] for k, v in enumerate(there)}
        legal = np.broadcast_to(boxes.is_legal(along), shape)
        table = np.zeros(shape)
        for at in zip(*np.nonzero(legal), strict=True):
            sizes = {v: each[v][0][k] for v, k in zip(there, at, strict=True)}
            whole = [sizes.get(v, 1) for v in boxes.variables]
            table[at] = boxes.of_tiles(whole)[0 if term.tile else 1]
        table[~legal] = table[legal].max(initial=0)  # within the bounds of the others
        table = table[np.ix_(*(each[v][1] for v in there))]
        axes = [group.index(self.bundle[v]) for v in there]
        shape = [1] * len(group)
        for axis, n in zip(axes, table.shape, strict=True):
            shape[axis] = n
        return table.transpose(np.argsort(axes)).reshape(shape)

    def _tile(self, v: int, level: int, alone: bool = True) -> Array:
        c = self.chains[v]
        return c.tiles[level].astype(float) if alone and level != END else np.ones(c.count)

    def _count(self, v: int, level: int) -> Array:
        """Tiles of a variable at a level, over all instances."""
        c = self.chains[v]
        if level == END:
            return np.full(c.count, float(c.extent))
        if (v, level) not in self._trips:
            if c.even:
                self._trips[v, level] = c.extent / c.tiles[level]
            else:
                levels = [(tile, False) for tile in c.tiles[: level + 1]]
                self._trips[v, level] = trips(self._whole(v), levels).astype(float)
        return self._trips[v, level]

    def _unevenly(self, term: Term, v: int, alone: bool) -> Array:
        """Return the factor of a variable whose last instance along a fanout may have less than the others,
        and the first one the most: the sum over all instances, or over the first ones along some fanouts."""
        first = term.split | (term.own if alone else term.union)
        level, spread = (END, NONE) if alone else (term.level, term.spread)
        key = v, level, first, spread
        if key not in self._uneven:
            splits = [(size, how == "first") for size, how in self._splits(v, level, NONE, first, spread)]
            self._uneven[key] = trips(self._whole(v), splits, level == END).astype(float)
        return self._uneven[key]

    def _splits(self, v: int, level: int, union: Fans, first: Fans, spread: Fans) -> list[tuple[Array, str]]:
        """Return tile sizes of all loops over a variable down to a level, and which tiles of each loop count:
        `each` tile by itself, their `union`, or the `first`. Below the level only the first of each, except
        for the fanouts of `spread`."""
        c = self.chains[v]
        fanned = c.around_fanouts(self.positions)
        last = len(c.tiles) if level == END else level
        deepest = max((self.positions[f] for f in spread), default=-1)
        result: list[tuple[Array, str]] = []
        for at, tile in enumerate(c.tiles[: max(last, deepest) + 1]):
            result.append((tile, "first" if at > last else "each"))
            here = [f for f, position in enumerate(self.positions) if position == at]
            if at >= last and at > deepest:
                break
            for number, f in enumerate(here):
                if not number:
                    result.append((fanned[f][0], "first" if at >= last else "each"))
                how = "union" if f in union else "first" if f in first else "each"
                result.append((fanned[f][1], how if at < last else "each" if f in spread else "first"))
        return result

    def _whole(self, v: int) -> Array:
        return np.full(self.chains[v].count, self.chains[v].extent, dtype=np.int64)

    def _tied(self, term: Term, tie: Tie, operand: Operand | None, group: tuple[int, ...]) -> Array:
        """For two tied variables: elements of the largest tile, or of all nonempty tiles."""
        if term.slides == ANY:
            along = (term._replace(slides=v) for v in (tie.u, tie.v))
            return np.minimum(*(self._tied(one, tie, operand, group) for one in along))
        elements = tie.of(operand) if operand is not None else POINTS
        both = self.bundle[tie.u], self.bundle[tie.v]
        apart = term.slides in tie.both or any((self.chains[b].spread > 1).any() for b in both)
        if apart and not term.tile:
            (one, where_u), (two, where_v) = (self._cuts(b, (term, _work(term))) for b in both)

            def counted(u: tuple[Cuts, ...], v: tuple[Cuts, ...]) -> int:
                if term.split or term.own:
                    return of_busiest(tie, (u[1], v[1]), (u[0], v[0]), elements)
                return int(of_instances(tie, (u[0], v[0]), elements).sum())

            table = np.array([[counted(u, v) for v in two] for u in one], dtype=float)
        else:
            measured = tie.largest if term.tile else tie.moved
            (sizes_u, where_u), (sizes_v, where_v) = (self._sizes(b, term.level) for b in both)
            table = np.array([[measured((u, v), elements) for v in sizes_v] for u in sizes_u], dtype=float)
        return self._laid_out(table[np.ix_(where_u, where_v)], both, group)

    def _laid_out(self, table: Array, both: tuple[int, int], group: tuple[int, ...]) -> Array:
        """Return a table over two bundles' candidates, with one axis for each bundle of the group."""
        return _placed(table, (group.index(both[0]), group.index(both[1])), len(group))

    def unequal(self, terms: Iterable[Part], group: tuple[int, ...]) -> Array:
        """Return a mask [n1, n2, ...] of candidates for which no instance of each component has the maximum
        of every term, or that do not keep the order of generations."""
        result = np.zeros(tuple(self.chains[b].count for b in group), bool)
        for boxes in (o.boxes for o in self.space.operands if o.boxes is not None):
            tiles = {}
            for k, b in enumerate(group):
                every = self.chains[b].tiles
                tiles[self.space.bundles[b][0]] = every.reshape(len(every), *_shape(k, len(group)))
            result |= ~boxes.is_legal(tiles)
        shares = [t for t in terms if isinstance(t, Term) and (t.split or t.own)]
        for tie in (t for t in self.space.ties if self.bundle[t.u] in group):
            both = self.bundle[tie.u], self.bundle[tie.v]
            if all((self.chains[b].spread == 1).all() for b in both):
                continue
            for term in (t for t in shares if not t.own):
                # elements that are not read back are not among those that the busiest instance reads
                out = [t for t in shares if t.own == term.split and t.operand == term.operand]
                for several in ((term, _work(term)), *((term, _work(term), x) for x in out)):
                    along = (-1, tie.u, tie.v) if term.slides == ANY else (term.slides,)
                    ways = ((term._replace(slides=v), *several[1:]) for v in along)
                    tables = [self._not_busiest(tie, way) for way in ways]
                    result |= self._laid_out(np.logical_and.reduce(tables), both, group)
        return result

    def _not_busiest(self, tie: Tie, several: tuple[Term, ...]) -> Array:
        """Return whether, for each pair of candidates, an instance other than that with the most points has
        the most of a term. `several`: the term, the points, and the elements to exclude, if any."""
        (one, where_u), (two, where_v) = (self._cuts(self.bundle[v], several) for v in (tie.u, tie.v))
        operand = several[0].operand
        elements = tie.of(self.space.operands[operand]) if operand != OPERATIONS else POINTS

        def other(u: tuple[Cuts, ...], v: tuple[Cuts, ...]) -> bool:
            mine, points, *out = zip(u, v, strict=True)
            return not is_busiest(tie, points, mine, elements, *out)

        table = np.array([[other(u, v) for v in two] for u in one])
        return table[np.ix_(where_u, where_v)]

    def _cuts(self, v: int, several: tuple[Term, ...]) -> tuple[list[tuple[Cuts, ...]], Array]:
        """The distinct ways in which these terms cut a tied variable, and the way of each candidate [n]."""
        if (v, several) not in self._cut:
            c = self.chains[v]
            loops = [self._roles(v, term) for term in several]
            rows = zip(*(size.tolist() for some in loops for size, _ in some), strict=True)
            kinds = tuple(tuple(kind for _, kind in some) for some in loops)
            found: dict[tuple[Cuts, ...], int] = {}
            number = [found.setdefault(cuts_of(c.extent, row, kinds), len(found)) for row in rows]
            self._cut[v, several] = list(found), np.array(number, np.int64)
        return self._cut[v, several]

    def _roles(self, v: int, term: Term) -> list[tuple[Array, Role]]:
        """Tile sizes of all loops over a variable, outermost first [n], and each loop's role in a term."""
        c = self.chains[v]
        last = len(c.tiles) if term.level == END else term.level
        fanned = c.around_fanouts(self.positions)
        mine = term.split | term.own
        sliding = last if term.slides >= 0 and self.bundle[term.slides] == v else -1
        held: Role = "joined" if term.slides < 0 else "shared"  # by instances together
        result: list[tuple[Array, Role]] = []
        for at, tile in enumerate(c.tiles):
            here = [f for f, position in enumerate(self.positions) if position == at]
            before = sliding == at and at - 1 not in self.positions
            result.append((tile, "slides" if before else "each" if at <= last else "joined"))
            for f in here:
                outer, inner = fanned[f]
                before = at == sliding - 1 and f == here[0]
                result.append((outer, "slides" if before else "each" if at < last else "joined"))
                counted = at < last and f not in term.union
                alone: Role = "each" if counted or f in term.spread else held if at < last else "joined"
                result.append((inner, "instance" if f in mine else alone))
        if term.level == END:
            result.append((np.ones(c.count, np.int64), "each"))
        return result

    def _sizes(self, v: int, level: int) -> tuple[list[int], Array]:
        """The distinct tile sizes at a level, and the size of each candidate [n]."""
        c = self.chains[v]
        values, where = np.unique(
            np.ones(c.count, np.int64) if level == END else c.tiles[level], return_inverse=True
        )
        return values.tolist(), where.reshape(-1)

    def _windowed(self, term: Term, w: RankWindow, group: tuple[int, ...], into: int | None) -> Array:
        if into is not None:
            return np.minimum(*(self._window(term, w, group, *to) for to in ((into, None), (None, into))))
        return self._window(term, w, group, None, None)

    def _imaged(self, term: Term, w: TwoImages, group: tuple[int, ...]) -> Array:
        """Elements of two images of a rank: of the largest tile, or summed over all tiles. Compute reads
        both."""
        both = self.bundle[w.p], self.bundle[w.r]
        if term.tile:
            (sizes_p, where_p), (sizes_r, where_r) = (self._sizes(b, term.level) for b in both)
            table = np.array([[w.elements(p, r) for r in sizes_r] for p in sizes_p], dtype=float)
            return self._laid_out(table[np.ix_(where_p, where_r)], both, group)
        alone_p, alone_r = (self._single(term, b, True) for b in both)
        visits_p, visits_r = (self._single(term, b, False) for b in both)
        table = alone_p[:, None] * visits_r + visits_p[:, None] * alone_r
        if term.level != END:
            (steps_p, where_p), (steps_r, where_r) = (self._parted(b, term.split) for b in both)
            common = np.array([[w.common(p, r) for r in steps_r] for p in steps_p], dtype=float)
            table = table - common[np.ix_(where_p, where_r)]
        return self._laid_out(table, both, group)

    def _parted(self, v: int, fans: Fans) -> tuple[list[Steps], Array]:
        """The distinct ways in which fanouts part a variable, and the way of each candidate [n]."""
        c = self.chains[v]
        columns = [x for f in sorted(fans) for x in (c.spread[f], self._apart(c, f))]
        if not columns:
            return [()], np.zeros(c.count, np.int64)
        rows, where = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return [tuple(zip(row[::2], row[1::2], strict=True)) for row in rows.tolist()], where.reshape(-1)

    def _neighbours(self, term: Term, w: RankWindow, group: tuple[int, ...], into: int | None) -> Array:
        """Return the elements of a window whose second variable no loop iterates over. An element between two
        that are read is live as well, since another iteration reads it."""
        whole = self._window(term, w, (*group, self.bundle[w.r]), None, None)[..., 0]
        if into is None:
            return whole
        size = self._tile(self.bundle[w.p], into)
        reach = w.step_r * (size - 1) + w.step_p * (w.held - 1) + 1
        return np.minimum(whole, _along(reach, group.index(self.bundle[w.p]), len(group)))

    def _window(
        self, term: Term, w: RankWindow, group: tuple[int, ...], into_p: int | None, into_r: int | None
    ) -> Array:
        """Elements of a window's rank: of the largest tile, or summed over all tiles of all instances."""
        p, r = self.bundle[w.p], self.bundle[w.r]
        axes = group.index(p), group.index(r)
        if not term.tile and any(self.chains[v].shared is not None for v in (p, r)):
            return self._uneven_window(term, w, (p, r), axes, len(group))
        if not term.tile and self.chains[p].even:
            result = self._even_window(term, w, p, r, axes, len(group))
        else:
            e, over_p = self._parts(term, p, w.step_p, into_p)
            f, over_r = self._parts(term, r, w.step_r, into_r)
            whole = _along(e, axes[0], len(group)) * _along(f, axes[1], len(group))
            result = whole - _along(over_p, axes[0], len(group)) * _along(over_r, axes[1], len(group))
        for v, axis in zip((p, r), axes, strict=True):
            fans = () if term.tile else sorted(term.split | term.own)
            if fans:
                result = result / _along(self._instances(v, fans), axis, len(group))
            result = result * _along(self._instances(v, term.repeated(v)), axis, len(group))
        return result

    def _even_window(
        self, term: Term, w: RankWindow, p: int, r: int, axes: tuple[int, int], many: int
    ) -> Array:
        """For equal tiles: their number times the elements of each, or of those that instances share."""
        if term.step is not None:
            return self._kept_window(term, w, (p, r), axes, many)
        if term.slides in (w.p, w.r, ANY):
            along = [w.p, w.r] if term.slides == ANY else [term.slides]
            every = [self._sliding_window(term._replace(slides=v), w, p, r, axes, many) for v in along]
            return np.minimum(every[0], every[-1])
        times_p, parts_p, where_p = self._read_together(term, p)
        times_r, parts_r, where_r = self._read_together(term, r)
        sizes = [[window_elements(w, a, b) for b in parts_r] for a in parts_p]
        each = np.array(sizes, dtype=float)[np.ix_(where_p, where_r)]
        each = _placed(each, axes, many)
        if term.each:
            return each
        return each * _along(times_p, axes[0], many) * _along(times_r, axes[1], many)

    def _uneven_window(
        self, term: Term, w: RankWindow, both: tuple[int, int], axes: tuple[int, int], many: int
    ) -> Array:
        """For unequal tiles: elements of each pair of value sets read together, times their frequencies."""
        (often_p, parts_p), (often_r, parts_r) = (self._read_unevenly(term, v) for v in both)
        each = np.array([[union_elements(w, a, b) for b in parts_r] for a in parts_p], dtype=float)
        result = often_p @ each @ often_r.T
        return _placed(result, axes, many)

    def _read_unevenly(self, term: Term, v: int) -> tuple[Array, list[Runs]]:
        """The frequency of each set of values read at a time, per candidate [n, sets], and the sets."""
        splits = self._splits(v, term.level, term.union & self.overlapping, term.split | term.own, NONE)
        if term.level == END:
            splits.append((np.ones(self.chains[v].count, np.int64), "each"))
        rows, where = np.unique(np.stack([size for size, _ in splits], axis=1), axis=0, return_inverse=True)
        hows = [how for _, how in splits]
        whole: Runs = ((0, self.chains[v].extent),)
        found = [dict(read_together(whole, tuple(zip(row, hows, strict=True)))) for row in rows.tolist()]
        sets = list(dict.fromkeys(s for one in found for s in one))
        often = np.array([[one.get(s, 0) for s in sets] for one in found], dtype=float)
        return often[where.reshape(-1)], sets

    def _sliding_window(
        self, term: Term, w: RankWindow, p: int, r: int, axes: tuple[int, int], many: int
    ) -> Array:
        """Return the elements of a window if only the first iteration directly above the level reads whole
        windows, and each later one only elements that the previous one did not have."""
        along = self.bundle[term.slides]
        fans = sorted(term.union & self.overlapping)
        (parts_p, where_p, times_p), (parts_r, where_r, times_r) = (
            self._instances_apart(term, v, fans) for v in (p, r)
        )
        distance, steps = self._steps(term.level, along)
        different, which = np.unique(distance, return_inverse=True)

        def table(late: int) -> Array:
            """Elements of one iteration, by the tiles of both variables and the distance."""
            return np.array(
                [
                    [
                        [sliding_elements(w, a, b, along == p, int(d) * late) for d in different]
                        for b in parts_r
                    ]
                    for a in parts_p
                ],
                dtype=float,
            )

        def by_step(values: Array) -> Array:
            return values[:, None] if along == p else values[None, :]

        at = where_p[:, None], where_r[None, :], by_step(which.reshape(-1))
        n = by_step(steps)
        result = (table(0)[at] + (n - 1) * table(1)[at]) / n * times_p[:, None] * times_r[None, :]
        return _placed(result, axes, many)

    def _kept_window(
        self, term: Term, w: RankWindow, both: tuple[int, int], axes: tuple[int, int], many: int
    ) -> Array:
        """Return the elements of a window that stay over these steps; of elements that instances read
        together, those that stay in each of them."""
        step, fans = term.step, sorted(term.union & self.overlapping)
        assert step is not None
        (parts_p, where_p, times_p), (parts_r, where_r, times_r) = (
            self._instances_apart(term, v, fans) for v in both
        )
        (_, share_p, ahead_p), (_, share_r, ahead_r) = (self._moved(term, step, v) for v in both)
        moved = w.step_r * ahead_p[:, None] + w.step_p * ahead_r
        result = kept_table(w, parts_p, parts_r, where_p[:, None] * len(parts_r) + where_r, moved)
        result = result * (times_p * share_p)[:, None] * (times_r * share_r)
        return _placed(result, axes, many)

    def _moved(self, term: Term, step: VisitStep, v: int) -> tuple[Array, Array, Array]:
        """For the loops over a bundle that a step advances or starts again [n]: iterations of the latter, the
        share of such steps in all visits, and the distance from the tile before."""
        c = self.chains[v]
        mine = self.space.bundles[v][0] if v < len(self.space.bundles) else -1
        inside, ahead = np.ones(c.count), np.zeros(c.count, np.int64)
        for level in range(step.level + (mine not in step.inner), term.level):
            distance, times = self._steps(level + 1, v)
            inside, ahead = inside * times, ahead - distance * (np.rint(times).astype(np.int64) - 1)
        if mine != step.variable:
            return inside, 1 / inside, ahead
        distance, times = self._steps(step.level + 1, v)
        return inside, (times - 1) / (times * inside), ahead + distance

    def _instances_apart(self, term: Term, v: int, fans: list[int]) -> tuple[list[Tiles], Array, Array]:
        """Return tiles of a variable with its instances along fanouts, the tile of each candidate [n], and
        how often it is read [n]."""
        c = self.chains[v]
        columns = [c.tiles[term.level]]
        for f in fans:
            columns += [c.spread[f], self._apart(c, f)]
        rows, where = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        parts = [(row[0], tuple(zip(row[1::2], row[2::2], strict=True))) for row in rows.tolist()]
        times = c.extent / (c.tiles[term.level] * self._instances(v, fans))
        return parts, where.reshape(-1), times

    def _steps(self, level: int, v: int) -> tuple[Array, Array]:
        """Return the distance by which a variable moves in one iteration of the loop directly above a level,
        and its number of iterations [n]."""
        c = self.chains[v]
        inner = c.tiles[level].copy()
        for f, position in enumerate(self.positions):
            if position == level - 1:
                inner = inner * c.spread[f]
        return inner, c.tiles[level - 1] / inner

    def _read_together(self, term: Term, v: int) -> tuple[Array, list[EqualRanges], Array]:
        """How often a variable's tile is read [n], the distinct sets of its values that are read at a time,
        and the set of each candidate [n]."""
        c = self.chains[v]
        size = np.ones(c.count, np.int64) if term.level == END else c.tiles[term.level]
        fans = sorted(term.union & self.overlapping)
        columns = [size]
        for f in fans:
            columns += [c.spread[f], self._apart(c, f)]
        rows, where = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        parts = [EqualRanges.of(row[0], zip(row[1::2], row[2::2], strict=True)) for row in rows.tolist()]
        return c.extent / (size * self._instances(v, fans)), parts, where.reshape(-1)

    def _apart(self, c: TileChains, fanout: int) -> Array:
        """Return the distance between the starts of neighbouring instances of a fanout."""
        at = self.positions[fanout]
        result = c.tiles[at + 1] if at + 1 < len(c.tiles) else np.ones(c.count, np.int64)
        for g in range(fanout + 1, len(self.positions)):
            if self.positions[g] == at:
                result = result * c.spread[g]
        return result

    def _instances(self, v: int, fans: Iterable[int]) -> Array:
        """The number of instances of these fanouts over which a variable is spread."""
        return prod_of([self.chains[v].spread[f] for f in fans], self.chains[v].count)

    def _parts(self, term: Term, v: int, step: int, into: int | None) -> tuple[Array, Array]:
        """Extents and their excess over `step`: of the tile, or summed over all tiles."""
        c = self.chains[v]
        if term.tile:
            size = self._tile(v, term.level if into is None else into)
            return size, np.maximum(size - step, 0)
        total = np.full(c.count, float(c.extent))
        if term.level == END:
            return total, np.zeros(c.count)
        return total, beyond(self._whole(v), list(c.tiles[: term.level + 1]), step).astype(float)


def _work(term: Term) -> Term:
    """The operations of each instance that a term distinguishes."""
    return Term(OPERATIONS, END, split=term.split | term.own)


def _shape(axis: int, axes: int) -> tuple[int, ...]:
    return tuple(-1 if k == axis else 1 for k in range(axes))


def _placed(table: Array, axes: tuple[int, int], many: int) -> Array:
    """A table over two of several axes."""
    shape = [1] * many
    shape[axes[0]], shape[axes[1]] = table.shape
    return (table if axes[0] < axes[1] else table.T).reshape(shape)


def _along(values: Array, axis: int, axes: int) -> Array:
    return np.reshape(values, _shape(axis, axes))
