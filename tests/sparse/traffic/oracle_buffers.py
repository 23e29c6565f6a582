"""Buffers of the slow enumerator: what one holds is a dict, emptied when its window ends."""

from __future__ import annotations

from collections import OrderedDict, defaultdict

_BUFFERS = ("buffet", "cache")


class Buffers:
    """The bindings of a run's buffers, eager ones spread over all ranks of the subtree."""

    def __init__(self, run):
        self.run = run
        self.bound = []
        self.eager = {}  # (tensor, root) -> loops at or above its innermost eviction
        for name, c in run.components.items():
            if c["class"].lower() in _BUFFERS:
                for b in c["bindings"]:
                    self.bind(name, b)

    def bind(self, name, b):
        fmt = self.run.spec["format"][b["tensor"]][b["format"]]
        if b.get("style", "lazy") == "lazy":
            if width(fmt[b["rank"]], b["type"]):
                self.bound.append({**b, "component": name, "root": None})
            return
        ranks = fmt["rank-order"]
        for rank in ranks[ranks.index(b["rank"]) :]:
            for kind in kinds(fmt[rank]):
                self.bound.append({**b, "component": name, "rank": rank, "type": kind, "root": b["rank"]})
        key = b["tensor"], b["rank"]
        self.eager[key] = max(self.eager.get(key, -1), self.evict(b["evict-on"]))

    def evict(self, rank):
        """How many loops lie at or above the rank that empties the buffet."""
        return 0 if rank == "root" else self.run.level(rank) + 1

    def memories(self):
        """Memory -> tensor -> bits read (and written, of the output); and the time."""
        sums = {}
        for b in self.bound:
            source = self.source(b)
            if source is not None:
                read, write = self.moved(b)
                mine = sums.setdefault(source, {}).setdefault(b["tensor"], [0, 0])
                mine[0] += read
                mine[1] += write
        found = {}
        for name, tensors in sums.items():
            out = self.run.einsum
            c = self.run.components[name]
            found[name] = {
                t: {"read": r} | ({"write": w} if t == out else {}) for t, (r, w) in tensors.items()
            }
            bits = sum(r + w for r, w in tensors.values())
            found[name]["time"] = bits / (c["attributes"]["bandwidth"] * c["instances"])
        return found

    def source(self, b):
        """The memory that holds the same data, next above in the architecture."""
        above = None
        for name, c in self.run.components.items():
            if name == b["component"]:
                return above
            if c["class"] == "DRAM":
                holds = any(same(x, b) for x in c["bindings"])
            else:
                holds = any(x["component"] == name and same(x, b) for x in self.bound)
            above = name if holds else above
        raise KeyError(b["component"])

    def moved(self, b):
        run = self.run
        component = run.components[b["component"]]
        line = component["attributes"]["width"]
        per_line = self.per_line(b)
        held, window, reads, writes = {}, None, 0, 0
        if component["class"].lower() == "cache":
            reads, writes = self.cached(b["component"])
            return line * reads[self.bound.index(b)], line * writes[self.bound.index(b)]
        evict = self.evict(b["evict-on"])
        for stamp, prefix, place, write, _ in self.accesses(b):
            if stamp[:evict] != window:
                writes += sum(held.values())
                held, window = {}, stamp[:evict]
            key = prefix, place // per_line
            if key not in held:
                reads += not write
                held[key] = False
            held[key] = held[key] or write
        writes += sum(held.values())
        return reads * line, writes * line

    def per_line(self, b):
        bits = width(self.run.spec["format"][b["tensor"]][b["format"]][b["rank"]], b["type"])
        found = self.run.components[b["component"]]["attributes"]["width"] // bits
        assert found
        return found

    def cached(self, name):
        """Lines fetched and written back per binding of a cache that drops the line used least recently, or
        the one whose next use is furthest in the future: one access after the other."""
        lines = self.run.components[name]["attributes"]["depth"]
        every = []
        for i, b in enumerate(self.bound):
            if b["component"] == name:
                per_line = self.per_line(b)
                every += [
                    (when, i, prefix, place // per_line, write)
                    for _, prefix, place, write, when in self.accesses(b)
                ]
        every.sort()
        keys = [tuple(line) for _, *line, _ in every]
        held, reads, writes = OrderedDict(), defaultdict(int), defaultdict(int)
        for now, key in enumerate(keys):
            write = every[now][-1]
            if key not in held:
                reads[key[0]] += not write
                if len(held) == lines:
                    dropped = next(iter(held))
                    if self.run.replacement == "optimal":
                        dropped = max(held, key=lambda k, now=now: next_use(keys, k, now))
                    writes[dropped[0]] += held.pop(dropped)
                held[key] = False
            held[key] = held[key] or write
            held.move_to_end(key)
        for key, dirty in held.items():
            writes[key[0]] += dirty
        return reads, writes

    def accesses(self, b):
        run, tensor, rank = self.run, b["tensor"], b["rank"]
        if b["root"]:
            # A store that counts to an earlier window comes after what happens there.
            events = run.events[tensor, rank, ("eager", b["root"])]
            return sorted(events, key=lambda e: e[0][: self.evict(b["evict-on"])])
        if tensor != run.einsum:
            return run.events[tensor, rank, "payload" if b["type"] == "payload" else "coord"]
        # An element of the output has the place it takes in the finished fiber.
        found = []
        for stamp, prefix, coord, write, when in run.events[tensor, rank, "out"]:
            fiber = run.out
            for c in prefix:
                fiber = fiber[c]
            found.append((stamp, prefix, sorted(fiber).index(coord), write, when))
        return found


def next_use(keys, key, now):
    return next((i for i in range(now + 1, len(keys)) if keys[i] == key), len(keys))


def same(x, y):
    return all(x[k] == y[k] for k in ("tensor", "rank", "type", "format"))


def kinds(fmt):
    if fmt.get("layout") == "interleaved":
        return ["elem"] if fmt.get("cbits") or fmt.get("pbits") else []
    return [k for k, bits in (("coord", "cbits"), ("payload", "pbits")) if fmt.get(bits)]


def width(fmt, kind):
    c, p = fmt.get("cbits", 0), fmt.get("pbits", 0)
    return {"coord": c, "payload": p, "elem": c + p}[kind]
