"""Streams of tokens, and the clock of the blocks that they join.

A stream carries the fibers of one rank one after the other: coordinates, references (positions in the rank
below) or values, and control tokens. `stop(0)` ends a fiber, `stop(n)` ends n ranks above it as well, and
`DONE` ends the stream. `EMPTY` stands in the place of a reference where there is none. The protocol is that
of the Sparse Abstract Machine (Hsu et al., ASPLOS 2023).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cache

from polymodel.errors import InternalError
from polymodel.governor import tick


@dataclass(frozen=True, slots=True)
class Control:
    """A token that is no coordinate, reference or value; `level` of a stop: ranks that end above its own."""

    name: str
    level: int = -1


DONE, EMPTY = Control("done"), Control("empty")
Token = int | float | Control
# What a block does in a cycle: takes an entry, passes an entry over, ends a fiber, ends the stream, sends
# what it has kept, or waits. A generator that yields this once a cycle is a block.
Block = Generator[str, None, None]
WAIT = "wait"


@cache
def stop(level: int) -> Control:
    """The end of a fiber and of so many ranks above."""
    return Control("stop", level)


class Stream:
    """The end of a connection that a block reads: tokens in the order in which they were sent."""

    def __init__(self) -> None:
        self.tokens: deque[Token] = deque()

    def take(self) -> Token:
        return self.tokens.popleft()


class Port:
    """Where a block sends, at most one token a cycle; every stream that is joined to it gets each token.

    A token that is sent in one cycle can be read from the next one on; streams hold any number of them.
    """

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.sent: list[Token] = []

    def join(self) -> Stream:
        """A new stream of what is sent here."""
        self.streams.append(Stream())
        return self.streams[-1]

    def send(self, token: Token) -> None:
        self.sent.append(token)

    def deliver(self) -> None:
        """At the end of a cycle."""
        if len(self.sent) > 1:
            raise InternalError(f"a block sent {len(self.sent)} tokens in one cycle")
        for token in self.sent:
            for stream in self.streams:
                stream.tokens.append(token)
        self.sent.clear()


def heads(*streams: Stream) -> Generator[str, None, tuple[Token, ...]]:
    """The next token of each stream; waits for those that are not there yet."""
    while not all(stream.tokens for stream in streams):
        yield WAIT
    return tuple(stream.tokens[0] for stream in streams)


@dataclass
class BlockMachine:
    """Blocks and the ports between them, run cycle by cycle until every block has ended its stream.

    `did`: per block, how many cycles it spent on what. `ended`: the cycle in which it ended its stream.
    """

    blocks: dict[str, Block] = field(default_factory=dict)
    ports: list[Port] = field(default_factory=list)
    did: dict[str, Counter[str]] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    def port(self) -> Port:
        self.ports.append(Port())
        return self.ports[-1]

    def add(self, name: str, block: Block) -> None:
        self.blocks[name] = block
        self.did[name] = Counter()

    def run(self) -> int:
        """Cycles until the last block has ended its stream."""
        running, cycle = list(self.blocks.items()), 0
        while running:
            cycle += 1
            tick("simulating tiles", len(running))
            moved = False
            for name, block in running:
                action = next(block)
                self.did[name][action] += 1
                moved |= action != WAIT
                if action == "done":
                    self.ended[name] = cycle
            if not moved:
                raise InternalError(f"blocks wait for each other: {', '.join(name for name, _ in running)}")
            for port in self.ports:
                if port.sent:
                    port.deliver()
            running = [(name, block) for name, block in running if name not in self.ended]
        return cycle
