"""Blocks one by one: what streams come out of which, and in which cycle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from polymodel.errors import InternalError
from polymodel.tiling.simulate import blocks
from polymodel.tiling.simulate.blocks import FiberLevel
from polymodel.tiling.simulate.streams import DONE, EMPTY, Block, BlockMachine, Port, Stream, Token, stop

S0, S1, S2 = stop(0), stop(1), stop(2)


def feed(tokens: Sequence[Token], out: Port) -> Block:
    """A block that sends these, one a cycle."""
    for token in tokens:
        out.send(token)
        yield "done" if token is DONE else "entry"


def run(
    inputs: Sequence[Sequence[Token]], outputs: int, block: Callable[[list[Stream], list[Port]], Block]
) -> tuple[list[list[Token]], int]:
    """What a block sends on each port, and the cycles until all of it is written."""
    machine, joined, written = BlockMachine(), [], []
    for number, tokens in enumerate(inputs):
        port = machine.port()
        joined.append(port.join())
        machine.add(f"input {number}", feed(tokens, port))
    ports = [machine.port() for _ in range(outputs)]
    for number, port in enumerate(ports):
        written.append([])
        machine.add(f"output {number}", blocks.writer(port.join(), written[-1]))
    machine.add("block", block(joined, ports))
    return written, machine.run()


def test_a_scanner_ends_ranks_together() -> None:
    """Fibers 1 3, none, 2: a stop that follows a reference is taken with it and ends one rank more."""
    level = FiberLevel([0, 2, 2, 3], [1, 3, 2])
    given = [0, 1, S0, 2, S1, DONE]
    written, cycles = run([given], 2, lambda i, o: blocks.scanner(i[0], o[0], o[1], level))
    assert written == [[1, 3, S0, S1, 2, S2, DONE], [0, 1, S0, S1, 2, S2, DONE]]
    assert cycles == 1 + 7 + 1  # the input's cycle, a token a cycle, the writer's cycle
    lone, _ = run([[S0, DONE]], 2, lambda i, o: blocks.scanner(i[0], o[0], o[1], level))
    assert lone[0] == [S1, DONE]
    none, _ = run([[EMPTY, S0, DONE]], 2, lambda i, o: blocks.scanner(i[0], o[0], o[1], level))
    assert none[0] == [S1, DONE]


def test_merges_take_the_lesser_coordinate() -> None:
    """Both take 1, 2, 4, 5 and 7 and the end, a cycle each; the intersection sends 4 alone."""
    a = [[1, 4, 5, S0, DONE], [10, 11, 12, S0, DONE]]
    b = [[2, 4, 7, S0, DONE], [20, 21, 22, S0, DONE]]
    for kind, theirs in (
        ("union", [[1, 2, 4, 5, 7, S0, DONE], [10, EMPTY, 11, 12, EMPTY, S0, DONE],
                   [EMPTY, 20, 21, EMPTY, 22, S0, DONE]]),
        ("intersect", [[4, S0, DONE], [11, S0, DONE], [21, S0, DONE]]),
    ):  # fmt: skip
        made = run(
            [*a, *b], 3, lambda i, o, k=kind: blocks.merger(k, (i[0], i[1]), (i[2], i[3]), o[0], (o[1], o[2]))
        )  # type: ignore[misc]  # the default binds the loop's kind
        assert made == (theirs, 1 + 7 + 1)


def test_a_repeater_sends_a_reference_for_each_coordinate() -> None:
    refs, crd = [5, 6, S0, 7, S1, DONE], [0, 1, S0, S1, 2, S2, DONE]
    written, _ = run([refs, crd], 1, lambda i, o: blocks.repeater(i[0], i[1], o[0]))
    assert written == [[5, 5, S0, S1, 7, S2, DONE]]
    written, _ = run([[S0, DONE], [S1, DONE]], 1, lambda i, o: blocks.repeater(i[0], i[1], o[0]))
    assert written == [[S1, DONE]]


def test_arrays_and_alus_pass_control_tokens() -> None:
    written, _ = run([[1, EMPTY, S0, DONE]], 1, lambda i, o: blocks.array(i[0], o[0], [3.0, 4.0]))
    assert written == [[4.0, 0.0, S0, DONE]]
    sides = [[2.0, S0, DONE], [5.0, S0, DONE]]
    written, _ = run(sides, 1, lambda i, o: blocks.alu(lambda x, y: x * y, i[0], i[1], o[0]))
    assert written == [[10.0, S0, DONE]]


def test_reducers_sum_fibers() -> None:
    """The sum of the second fiber and the stop of the rank above go out in two cycles."""
    written, cycles = run([[1.0, 2.0, S0, S0, 3.0, S1, DONE]], 1, lambda i, o: blocks.reducer(i[0], o[0]))
    assert written == [[3.0, 3.0, S0, DONE]]
    assert cycles == 1 + 8 + 1


def test_a_row_reducer_sends_the_sums_of_a_row_in_order() -> None:
    crd = [3, 1, S0, 1, S1, 2, S2, DONE]
    values = [1.0, 2.0, S0, 5.0, S1, 4.0, S2, DONE]
    written, cycles = run([crd, values], 2, lambda i, o: blocks.row_reducer(i[0], i[1], o[0], o[1]))
    assert written == [[1, 3, S0, 2, S1, DONE], [7.0, 1.0, S0, 4.0, S1, DONE]]
    assert cycles == 6 + 3 + 2 + 1 + 1  # S1 is taken in cycle 6; both rows, the end, the writer


def test_a_dropper_leaves_out_empty_fibers() -> None:
    outer, inner = [1, 2, 4, S0, DONE], [S0, 7, 8, S0, S1, DONE]
    written, _ = run([outer, inner], 1, lambda i, o: blocks.dropper(i[0], i[1], o[0]))
    assert written == [[2, S0, DONE]]


def test_blocks_that_wait_for_each_other_are_an_internal_error() -> None:
    machine = BlockMachine()
    port = machine.port()
    machine.add("lonely", blocks.writer(port.join(), []))
    with pytest.raises(InternalError, match="wait for each other: lonely"):
        machine.run()
