"""Pieces of the slow enumerator: Einsums as text, partitioning point by point, trees of dicts, mergers."""

from __future__ import annotations

import math
import re
from collections import defaultdict


def expression(text):
    out, right = (part.strip() for part in text.split("=", 1))
    take = re.match(r"take\((.*),\s*(\d+)\)$", right)
    body = take.group(1) if take else right
    operand = r"(\w+)\[([^\]]*)\]"
    name, variables = re.match(operand, out).groups()
    inputs = [(t, _ranks(v)) for t, v in re.findall(operand, body)]
    return name, _ranks(variables), inputs, int(take.group(2)) if take else None


def _ranks(text):
    return [x.strip().upper() for x in text.split(",") if x.strip()]


def size_of(text, symbols):
    return int(text) if str(text).isdigit() else symbols[text]


def partition(points, ranks, rules, symbols):
    """points: {tuple of coords: value}. Returns new ranks and points, one rule after the other."""
    for key, operations in rules.items():
        names = [k.strip() for k in key.strip("()").split(",")]
        if len(names) > 1:
            if not all(n in ranks for n in names):
                continue
            where = [ranks.index(n) for n in names]
            rest = [i for i in range(len(ranks)) if i not in where]
            at = min(where)
            order = [i for i in rest if i < at], [i for i in rest if i > at]
            ranks = [ranks[i] for i in order[0]] + ["".join(names)] + [ranks[i] for i in order[1]]
            points = {
                tuple(p[i] for i in order[0])
                + (tuple(p[i] for i in where),)
                + tuple(p[i] for i in order[1]): v
                for p, v in points.items()
            }
            continue
        rank = names[0]
        if rank not in ranks:
            continue
        at = ranks.index(rank)
        for n, operation in enumerate(operations):
            kind, argument = re.match(r"(\w+)\((.*)\)", operation).groups()
            left = len(operations) - n
            if kind == "uniform_shape":
                size = size_of(argument, symbols)
                points = {p[:at] + (p[at] // size * size, *p[at:]): v for p, v in points.items()}
            elif kind == "uniform_occupancy":
                size = size_of(argument.split(".")[1], symbols)
                fibers = defaultdict(set)
                for p in points:
                    fibers[p[:at]].add(p[at])
                start = {}
                for above, coords in fibers.items():
                    for i, c in enumerate(sorted(coords)):
                        first = sorted(coords)[i // size * size]
                        start[above, c] = first if i >= size else (0,) * len(c) if isinstance(c, tuple) else 0
                points = {p[:at] + (start[p[:at], p[at]], *p[at:]): v for p, v in points.items()}
            else:
                raise NotImplementedError(kind)
            ranks = ranks[:at] + [rank + str(left), rank + str(left - 1)] + ranks[at + 1 :]
            at += 1
    return ranks, points


def tree(points, order):
    root = {}
    for p, v in points.items():
        node = root
        for i in order[:-1]:
            node = node.setdefault(p[i], {})
        node[p[order[-1]]] = v
    return root


def components(spec, einsum):
    """The components an Einsum binds, in tree order: name -> class, attributes, instances, clock, bindings"""
    sections = spec["bindings"][einsum]
    config = next(s["config"] for s in sections if "config" in s)
    bound = {s["component"]: s["bindings"] for s in sections if "component" in s}
    root = spec["architecture"][config][0]
    clock = root["attributes"]["clock_frequency"]
    found = {}

    def visit(level, copies):
        dots = re.match(r".*\[(\d+)\.\.(\d+)\]", level["name"])
        copies *= int(dots.group(2)) - int(dots.group(1)) + 1 if dots else 1
        for c in level.get("local", []):
            if c["name"] in bound:
                found[c["name"]] = {
                    "class": c["class"],
                    "attributes": c.get("attributes", {}),
                    "instances": copies,
                    "clock": clock,
                    "bindings": bound[c["name"]],
                }
        for sub in level.get("subtree", []):
            visit(sub, copies)

    visit(root, 1)
    return found


def merges(points, declared, binding, attributes):
    order = [declared.index(r) for r in binding["init-ranks"]]
    root = tree(points, order)
    depth = next(
        i
        for i, (a, b) in enumerate(zip(binding["init-ranks"], binding["final-ranks"], strict=True))
        if a != b
    )
    nodes = [root]
    for _ in range(depth):
        nodes = [child for node in nodes for child in node.values()]
    radix = attributes["comparator_radix"]
    radix = math.inf if radix == "inf" else radix
    fixed = attributes["inputs"] != "inf"
    total = 0
    for node in nodes:
        lists = [sorted(node[c]) for c in sorted(node)]
        while len(lists) > 1:
            step = int(min(radix, len(lists)))
            merged = []
            for i in range(0, len(lists), step):
                group = lists[i : i + step]
                total += len(group) + sum(map(len, group)) if fixed else insertions(group)
                merged.append(sorted(c for part in group for c in part))
            lists = merged
    return total


def insertions(lists):
    """Comparisons of a sorted list of heads: an element passes all that are less, from the largest end."""
    heads, compares, rest = [], 0, [list(part) for part in lists]

    def insert(i):
        nonlocal compares
        if not rest[i]:
            return
        new = (-rest[i].pop(0), i)
        larger = [h for h in heads if h > new]
        compares += len(larger) + 1
        heads.append(new)

    for i in range(len(rest)):
        insert(i)
    while heads:
        top = max(heads)
        heads.remove(top)
        insert(top[1])
    return compares


def fuse(spec):
    blocks, used, state = [], set(), None
    for text in spec["einsum"]["expressions"]:
        e = text.split("[")[0].strip()
        config = next(s["config"] for s in spec["bindings"][e] if "config" in s)
        loops = spec["mapping"]["loop-order"][e]
        space = [s.split(".")[0] for s in spec["mapping"]["spacetime"][e]["space"]]
        outer = loops[: loops.index(space[0])] if space else loops
        units = {
            n
            for n, c in components(spec, e).items()
            if c["class"] in ("Compute", "Intersector", "Sequencer", "Merger")
        }
        if state == (config, outer) and not used & units:
            blocks[-1].append(e)
            used |= units
        else:
            blocks.append([e])
            used, state = units, (config, outer)
    return blocks
