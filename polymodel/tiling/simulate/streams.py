"""Streams of tokens between blocks, and the clock that drives the blocks.

A stream carries the fibers of one rank in sequence: coordinates, references (positions in the rank below) or
values, and control tokens. `stop(0)` ends a fiber, `stop(n)` ends n ranks above it as well, and `DONE` ends
the stream. `EMPTY` replaces a reference that does not exist. The protocol is that of the Sparse Abstract
Machine (Hsu et al., ASPLOS 2023).
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
    """A token that is not a coordinate, reference or value; `level` of a stop: the number of ranks above its
    own that end."""

    name: str
    level: int = -1


DONE, EMPTY = Control("done"), Control("empty")
Token = int | float | Control
# The actions of a block in a cycle: take an entry, skip an entry, end a fiber, end the stream, send stored
# tokens, or wait. A block is a generator that yields one action per cycle.
Block = Generator[str, None, None]
WAIT = "wait"


@cache
def stop(level: int) -> Control:
    """The end of a fiber and of this many ranks above it."""
    return Control("stop", level)


class Stream:
    """The receiving end of a connection: tokens in the order in which they were sent."""

    def __init__(self) -> None:
        self.tokens: deque[Token] = deque()

    def take(self) -> Token:
        return self.tokens.popleft()


class Port:
    """The sending end of connections: it sends at most one token per cycle, and every stream that is joined
    to it receives each token.

    A token that is sent in one cycle can be read from the next cycle on; streams hold any number of tokens.
    """

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.sent: list[Token] = []

    def join(self) -> Stream:
        """Return a new stream of the tokens that are sent here."""
        self.streams.append(Stream())
        return self.streams[-1]

    def send(self, token: Token) -> None:
        self.sent.append(token)

    def deliver(self) -> None:
        """Hand the sent token to the streams, at the end of a cycle."""
        if len(self.sent) > 1:
            raise InternalError(f"a block sent {len(self.sent)} tokens in one cycle")
        for token in self.sent:
            for stream in self.streams:
                stream.tokens.append(token)
        self.sent.clear()


def heads(*streams: Stream) -> Generator[str, None, tuple[Token, ...]]:
    """The next token of each stream; waits for tokens that have not arrived."""
    while not all(stream.tokens for stream in streams):
        yield WAIT
    return tuple(stream.tokens[0] for stream in streams)


@dataclass
class BlockMachine:
    """Blocks and the ports between them, run cycle by cycle until every block has ended its stream.

    `did`: for each block, the number of cycles that it spent on each activity. `ended`: the cycle in which it
    ended its stream.
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
        """Run all blocks and return the number of cycles until the last one has ended its stream."""
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
