"""Blocks of a streaming dataflow.

In each cycle a block takes at most one token of every input and sends at most one on every output; if its
rule requires it, a control token is taken together with the token before it. The blocks are those of the
Sparse Abstract Machine (Hsu et al., ASPLOS 2023), each with a latency of one cycle. Where the paper leaves a
choice, the docstrings state the chosen rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from polymodel.tiling.simulate.streams import (
    DONE,
    EMPTY,
    WAIT,
    Block,
    Control,
    Port,
    Stream,
    Token,
    heads,
    stop,
)


@dataclass(frozen=True, eq=False)
class FiberLevel:
    """A compressed rank: the coordinates of fiber `ref` are those from `begins[ref]` up to `begins[ref +
    1]`.
    """

    begins: Sequence[int]
    coords: Sequence[int]

    def fiber(self, ref: Token) -> range:
        """Positions of a fiber's coordinates; none for an empty reference."""
        return range(self.begins[ref], self.begins[ref + 1]) if isinstance(ref, int) else range(0)


def is_stop(token: Token) -> bool:
    return isinstance(token, Control) and token.level >= 0


def level_of(token: Token) -> int:
    """The level of a stop token."""
    assert isinstance(token, Control)
    return token.level


def root(refs: Port) -> Block:
    """The launch: sends the reference of the only fiber of the outermost rank, then ends the stream."""
    refs.send(0)
    yield "entry"
    refs.send(DONE)
    yield "done"


def scanner(refs: Stream, crd: Port, ref: Port, level: FiberLevel) -> Block:
    """Fiber scanner: for each reference it sends the coordinates of the fiber and their positions, one per
    cycle, then a stop. A stop that follows the reference is taken with it and ends one more rank; whether one
    follows is known when the next token has arrived, and the stop waits for it. A stop without a reference is
    passed on with its level raised by one."""
    while True:
        (token,) = yield from heads(refs)
        if token is DONE:
            crd.send(DONE)
            ref.send(DONE)
            yield "done"
        refs.take()
        level_up = level_of(token) + 1 if is_stop(token) else 0
        if not level_up:
            for at in level.fiber(token):
                crd.send(level.coords[at])
                ref.send(at)
                yield "entry"
            (after,) = yield from heads(refs)
            if is_stop(after):
                level_up = level_of(refs.take()) + 1
        crd.send(stop(level_up))
        ref.send(stop(level_up))
        yield "end"


def merger(
    kind: Literal["intersect", "union"],
    a: tuple[Stream, Stream],
    b: tuple[Stream, Stream],
    crd: Port,
    refs: tuple[Port, Port],
) -> Block:
    """Intersecter or unioner of two fibers (coordinates, references): each cycle takes the smaller
    coordinate, or both if they are equal. A union sends every coordinate, with EMPTY for an operand that does
    not have it; an intersection sends only equal coordinates, and nothing in a cycle that takes a single one.
    Both fibers end together: the rest of the longer one is consumed first."""
    while True:
        one, other = yield from heads(a[0], b[0])
        if isinstance(one, Control) and isinstance(other, Control):
            if one != other:
                raise AssertionError(f"fibers end apart: {one}, {other}")
            for port in (crd, *refs):
                port.send(one)
            _take(*a, *b)
            yield "done" if one is DONE else "end"
            continue
        take_a = isinstance(other, Control) or (not isinstance(one, Control) and one <= other)
        take_b = isinstance(one, Control) or (not isinstance(other, Control) and other <= one)
        taken = [a[1].take() if take_a else EMPTY, b[1].take() if take_b else EMPTY]
        _take(*(side[0] for side, now in ((a, take_a), (b, take_b)) if now))
        if kind == "union" or (take_a and take_b):
            crd.send(one if take_a else other)
            for port, token in zip(refs, taken, strict=True):
                port.send(token)
            yield "entry"
        else:
            yield "skip"


def repeater(refs: Stream, crd: Stream, out: Port) -> Block:
    """Sends a reference once for each coordinate of its fiber. The stop of the fiber consumes the reference;
    a stop of the reference's own rank that ends there is taken too."""
    while True:
        (inner,) = yield from heads(crd)
        (ref,) = yield from heads(refs)
        crd.take()
        if inner is DONE:
            out.send(DONE)
            yield "done"
        elif is_stop(inner):
            refs.take()
            if level_of(inner) > 0 and not is_stop(ref):
                yield from heads(refs)
                refs.take()
            out.send(inner)
            yield "end"
        else:
            out.send(ref)
            yield "entry"


def array(refs: Stream, out: Port, values: Sequence[float]) -> Block:
    """Memory of values: the value at each reference, 0 at an empty one."""
    while True:
        (ref,) = yield from heads(refs)
        refs.take()
        found = values[ref] if isinstance(ref, int) else 0.0 if ref is EMPTY else ref
        out.send(found)
        yield _action(found)


def alu(action: Callable[[float, float], float], a: Stream, b: Stream, out: Port) -> Block:
    """One operation per cycle on two streams of values with the same structure."""
    while True:
        one, other = yield from heads(a, b)
        _take(a, b)
        if isinstance(one, Control) or isinstance(other, Control):
            if one != other:
                raise AssertionError(f"values of different structure: {one}, {other}")
            out.send(one)
            yield _action(one)
        else:
            out.send(action(one, other))
            yield "entry"


def reducer(values: Stream, out: Port) -> Block:
    """Sums the values of each fiber: sends the sum at the stop of the fiber, and in the next cycle the stop
    of the rank above if that rank ends as well. A fiber without values has no sum."""
    total, some = 0.0, False
    while True:
        (token,) = yield from heads(values)
        values.take()
        if not isinstance(token, Control):
            total, some = total + token, True
            yield "entry"
            continue
        if token is DONE:
            out.send(DONE)
            yield "done"
        if some:
            out.send(total)
            yield "end"
        total, some = 0.0, False
        if token.level > 0:
            out.send(stop(token.level - 1))
            yield "end"


def row_reducer(crd: Stream, values: Stream, out_crd: Port, out_values: Port) -> Block:
    """Sums the fibers of one row into one fiber: values are accumulated by coordinate while the fibers of a
    row arrive. At the stop that ends the row, its sums are sent in ascending order of coordinates, one per
    cycle, followed by the stop of the row, while the next row arrives. Rows that are waiting to be sent are
    buffered."""
    sums: dict[int, float] = {}
    kept: deque[tuple[Token, Token]] = deque()
    while True:
        action = WAIT
        if kept:
            coordinate, total = kept.popleft()
            out_crd.send(coordinate)
            out_values.send(total)
            action = "done" if coordinate is DONE else "send"
        if crd.tokens and values.tokens:
            at, value = crd.take(), values.take()
            action = _action(at) if at is not DONE else action
            if isinstance(at, int) and not isinstance(value, Control):
                sums[at] = sums.get(at, 0.0) + value
            elif at is DONE:
                kept.append((DONE, DONE))
            elif level_of(at) > 0:
                end = stop(level_of(at) - 1)
                kept += [*sorted(sums.items()), (end, end)]
                sums = {}
        yield action


def dropper(outer: Stream, inner: Stream, out: Port) -> Block:
    """Coordinate dropper: sends a coordinate of the outer rank when the first coordinate of its fiber
    arrives, so that coordinates of empty fibers are dropped. A stop of the outer rank is taken with the stop
    of the inner rank that ends both."""
    sent = False
    while True:
        (token,) = yield from heads(inner)
        if not is_stop(token):
            action = _action(token)
            if token is DONE or not sent:
                yield from heads(outer)
                out.send(outer.take() if token is DONE else outer.tokens[0])
            inner.take()
            sent = token is not DONE
            yield action
            continue
        yield from heads(outer)
        if not is_stop(outer.tokens[0]):
            outer.take()
        if level_of(token) > 0:
            yield from heads(outer)
            out.send(outer.take())
        inner.take()
        sent = False
        yield "end"


def writer(tokens: Stream, written: list[Token]) -> Block:
    """Writes the tokens that arrive, one per cycle."""
    while True:
        (token,) = yield from heads(tokens)
        written.append(tokens.take())
        yield _action(token)


def _take(*streams: Stream) -> None:
    for stream in streams:
        stream.take()


def _action(token: Token) -> str:
    return "done" if token is DONE else "end" if is_stop(token) else "entry"
