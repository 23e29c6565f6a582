"""Reading Timeloop's YAML: every key that is read is marked, so that the rest can be named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from polymodel.importers.expressions import evaluate
from polymodel.importers.imported import Findings, LeftOut
from polymodel.importers.timeloop.unsupported_keys import left_out_key
from polymodel.spec.faults import TextFault, UnknownName, YamlEntry, YamlNode, suggestion
from polymodel.spec.numbers import Value

_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_OF_A_PART = re.compile(
    r"""\b([A-Za-z_]\w*)\.(attributes|spatial)(?:\[\s*["'](\w+)["']\s*\]|\.(\w+))""", re.ASCII
)
MOST_TEXT = 10_000  # characters of an expression that are looked through for parts
_DIGITS = 18  # of a number of instances: 64 bits
_RANGE = re.compile(r"\s*\[\s*(\d+)\s*\.\.\s*(\d+)\s*\]\s*\Z")
LARGEST = 2**53
CYCLE = "global_cycle_seconds"
# Variables that the export writes, where Timeloop's files have no key: how often the Einsum is executed, of
# which Timeloop evaluates one, the width of values where no memory says it, and the operators.
EXECUTIONS = "problem_executions"
VALUE_BITS = "problem_value_bits"
OPERATIONS = {f"problem_{what}": what for what in ("map", "reduce", "populate")}
RENAMES = "problem_renames"  # what tensors are called in architectures: `input: A; weight: B`
DEFAULT_BITS = 8


def plain_key(key: str) -> str:
    """`data-spaces`, `data_spaces` and `Data_Spaces` are one key."""
    return key.lower().replace("-", "_")


@dataclass
class TimeloopReading(Findings):
    """What was found so far, and which keys were read."""

    seen: set[int] = field(default_factory=set)
    variables: dict[str, Value | None] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # variables that are not numbers
    parts: dict[str, Value] = field(default_factory=dict)  # `NAME.attributes.KEY`, `NAME.spatial.KEY`

    def leave(
        self, node: YamlNode, message: str, remedy: str, path: str = "", *, key: str = "", changes: str = ""
    ) -> None:
        """Something that has no counterpart. `changes`: the figures that differ because of it.

        `key`: how `allow=` names it; without one it is told, and the import goes on.
        """
        place = node.place()
        self.leave_out(LeftOut(message, remedy, path, place, key=key, changes=changes, refused=bool(key)))

    def inlined(self, text: str) -> str:
        """An expression with the numbers of parts before it: `Buffer.attributes["depth"]`."""
        return _OF_A_PART.sub(
            lambda m: str(self.parts.get(f"{m[1]}.{m[2]}.{m[3] or m[4]}", m[0])), text[:MOST_TEXT]
        )

    def take(self, entry: YamlEntry) -> YamlNode:
        """Mark a key as read."""
        self.seen.add(id(entry))
        return entry.value

    def whole(self, node: YamlNode) -> None:
        """Mark all keys inside as read."""
        for inner in node.walk():
            self.seen.update(id(e) for e in inner.entries or ())

    def name_the_rest(self, root: YamlNode) -> None:
        """Everything that nobody has read is left out by name, but for what an alias has put elsewhere."""
        read = {(e.line, e.column) for e in _entries(root) if id(e) in self.seen and e.line}
        for entry in root.entries or ():
            within = _entries(entry.value)
            if id(entry) not in self.seen and any((e.line, e.column) in read for e in within):
                self.seen.update(id(e) for e in (entry, *within))
        for path, entry, owner in _untouched(root, "", self.seen, ("", "")):
            name, above = owner
            below = path.removeprefix(above).removeprefix(".").removeprefix("attributes.")
            found = left_out_key(entry, plain_key(entry.key), path, below, name)
            inside = (e for node in entry.value.walk() for e in node.entries or ())
            effects = (left_out_key(e, plain_key(e.key), path, f"{below}.{e.key}", name) for e in inside)
            for left in (found, *(e for e in effects if e.changes)):
                if (left.place, left.message) not in {(d.place, d.message) for d in self.left}:
                    self.left.append(left)


def _entries(node: YamlNode) -> list[YamlEntry]:
    return [e for inner in node.walk() for e in inner.entries or ()]


def _untouched(
    node: YamlNode, path: str, seen: set[int], owner: tuple[str, str]
) -> Iterator[tuple[str, YamlEntry, tuple[str, str]]]:
    """(path, key, (name, path) of the innermost part around it that has a name or a target)."""
    for entry in node.entries or ():
        if plain_key(entry.key) in ("name", "target") and entry.value.scalar is not None:
            owner = str(entry.value.scalar), path
    for entry in node.entries or ():
        below = f"{path}.{entry.key}" if path else entry.key
        if id(entry) not in seen:
            yield below, entry, owner
        else:
            yield from _untouched(entry.value, below, seen, owner)
    for i, inner in enumerate(node.elements or ()):
        yield from _untouched(inner, f"{path}[{i}]", seen, owner)


class Fields:
    """A mapping of the file, read key by key. `path` is where it stands, for messages."""

    def __init__(
        self, reading: TimeloopReading, node: YamlNode, path: str, scope: Mapping[str, Value] | None = None
    ):
        self.reading = reading
        self.node = node
        self.path = path
        self.scope: Mapping[str, Value | None] = {**reading.variables, **(scope or {})}
        if node.kind == "list" or (node.kind == "scalar" and node.scalar is not None):
            message = f"a mapping is expected, here is a {node.kind}"
            reading.fault(node, message, "write `key: value`", path, code="wrong-type")

    def __contains__(self, key: str) -> bool:
        return self._entry(key) is not None

    def _entry(self, *keys: str) -> YamlEntry | None:
        for entry in self.node.entries or ():
            if plain_key(entry.key) in keys:
                return entry
        return None

    def below(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def take(self, *keys: str) -> YamlNode | None:
        """The value of the first of these keys that is there."""
        entry = self._entry(*keys)
        return self.reading.take(entry) if entry else None

    def ignore(self, *keys: str) -> None:
        """Keys that say nothing beyond what is read elsewhere (versions, names of parts)."""
        for key in keys:
            found = self.take(key)
            if found is not None:
                self.reading.whole(found)

    def need(self, *keys: str, example: str) -> YamlNode | None:
        """As `take`; a fault if there is none."""
        result = self.take(*keys)
        if result is None:
            message = f"`{keys[0]}` is missing"
            self.reading.fault(self.node, message, f"add e.g. `{example}`", self.path, code="missing-key")
        return result

    def fields(self, *keys: str) -> Fields | None:
        result = self.take(*keys)
        return Fields(self.reading, result, self.below(keys[0]), self._numbers()) if result else None

    def _numbers(self) -> dict[str, Value]:
        return {k: v for k, v in self.scope.items() if v is not None}

    def items(self, *keys: str) -> tuple[YamlNode, ...]:
        """The elements of a list; a single value stands for a list of one."""
        result = self.take(*keys)
        if result is None or (result.kind == "scalar" and result.scalar is None):
            return ()
        return result.elements if result.elements is not None else (result,)

    def each(self, *keys: str) -> list[Fields]:
        """The elements of a list as mappings, each with its place; the first key names them in messages."""
        below = self.below(keys[0])
        return [Fields(self.reading, node, f"{below}[{i}]") for i, node in enumerate(self.items(*keys))]

    def text(self, *keys: str) -> str:
        """A word, empty if there is none."""
        result = self.take(*keys)
        if result is None or result.scalar is None:
            return ""
        return str(result.scalar)

    def words(self, *keys: str) -> tuple[tuple[str, YamlNode], ...] | None:
        """A list of words, also written as one text; None if the key is not there."""
        if self._entry(*keys) is None:
            return None
        result: list[tuple[str, YamlNode]] = []
        for node in self.items(*keys):
            if node.kind != "scalar":
                message = f"a name is expected, here is a {node.kind}"
                self.reading.fault(node, message, "", self.path, code="wrong-type")
                continue
            result += [(word, node) for word in re.split(r"[\s,]+", str(node.scalar).strip()) if word]
        return tuple(result)

    def number(self, *keys: str) -> Value | None:
        """A number or an expression over what is in scope; None if it is not there, or faulty."""
        result = self.take(*keys)
        return None if result is None else number_of(self.reading, result, self.scope, self.below(keys[0]))

    def amount(self, *keys: str, least: int = 1) -> Value | None:
        """A number above 0, or 0 too if that is the least; infinity is as good as none."""
        entry, value = self._entry(*keys), self.number(*keys)
        if entry is None or value is None or value == float("inf"):
            return None
        if not 0 < value <= LARGEST and value != least:
            remedy = "use a number above 0" if value <= 0 else "keep it below 2**53"
            message = f"{value} is not an amount"
            self.reading.fault(entry.value, message, remedy, self.below(entry.key), code="out-of-range")
            return None
        return value

    def count(self, *keys: str) -> int | None:
        """A whole number of at least 1."""
        entry = self._entry(*keys)
        if entry is None:
            return None
        return count_of(self.reading, self.reading.take(entry), self.scope, self.below(entry.key))


def number_of(
    reading: TimeloopReading, node: YamlNode, scope: Mapping[str, Value | None], path: str = ""
) -> Value | None:
    """The value of a number or expression; what is none is a fault, and the answer is None."""
    value = node.scalar
    if node.kind != "scalar" or value is None or isinstance(value, bool):
        shown = "nothing" if node.kind == "scalar" and value is None else f"a {node.kind}"
        shown = str(value).lower() if isinstance(value, bool) else shown
        what = f"a number is expected, here is {shown}"
        reading.fault(node, what, "write e.g. 16", path, code="not-a-number")
        return None
    if isinstance(value, (int, float)):
        return value
    try:
        return evaluate(reading.inlined(str(value)), scope)
    except TextFault as fault:
        message, word = fault.message, fault.message.removeprefix("unknown symbol ")
        if isinstance(fault, UnknownName) and word in reading.words:
            message = f"{word} is {reading.words[word]!r}, which is not a number"
        reading.fault(node, message, mended(fault), path, fault.offset, code="not-a-number")
        return None


def cycle_of(
    reading: TimeloopReading, node: YamlNode, scope: Mapping[str, Value | None], path: str = CYCLE
) -> Value | None:
    """The seconds of a cycle; a fault, and None, for what cannot be."""
    value = number_of(reading, node, scope, path)
    if value is None or 0 < value < float("inf"):
        return value
    what = f"a cycle of {value} seconds: it has to be {'above 0' if value <= 0 else 'finite'}"
    remedy = f"write the seconds of one cycle, e.g. `{CYCLE}: 1e-9`"
    reading.fault(node, what, remedy, path, code="out-of-range")
    return None


def mended(fault: TextFault) -> str:
    """The remedy of an expression's fault; Timeloop's symbols are variables."""
    if fault.remedy.startswith("declare it"):
        return "give it a value in `variables:`, or write the number"
    return fault.remedy


def count_of(
    reading: TimeloopReading, node: YamlNode, scope: Mapping[str, Value | None], what: str, least: int = 1
) -> int | None:
    """A whole number from `least` to 2^53, else a fault."""
    value = number_of(reading, node, scope, what)
    if value is None:
        return None
    if not least <= value <= LARGEST or value != int(value):
        remedy = f"use a whole number, {least} or more" if value < LARGEST else "keep it below 2**53"
        reading.fault(node, f"{value} is not a size", remedy, what, code="not-positive-integer")
        return None
    return int(value)


def exact(value: Value) -> Fraction:
    """The number as it is written: 2.2 is 11/5."""
    return Fraction(str(value))


def name_and_count(text: str) -> tuple[str, int]:
    """`PE[0..15]` is ("PE", 16), a name without a range stands for one; below 1: no such range can be."""
    match = _RANGE.search(text)
    if match is None:
        return text.strip(), 1
    name = text[: match.start()].strip()
    if max(map(len, match.groups())) > _DIGITS:
        return name, 0
    return name, int(match[2]) - int(match[1]) + 1


def named_instances(reading: TimeloopReading, node: YamlNode, text: str) -> tuple[str, int]:
    """`name_and_count`; a fault, and 1, for a range that holds no instance."""
    name, count = name_and_count(text)
    if count >= 1:
        return name, count
    message = f"{text[-60:]} is not a range of instances"
    reading.fault(node, message, f"write e.g. {name[:40]}[0..15]", code="syntax-error")
    return name, 1


def tidy_name(reading: TimeloopReading, node: YamlNode, text: str) -> str:
    """The text as a name of ours: letters, digits and _."""
    if _NAME.match(text):
        return text
    tidy = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "unnamed"
    tidy = tidy if _NAME.match(tidy) else f"_{tidy}"
    reading.note(node, f"{text!r} is called {tidy} here", "names are letters, digits and _")
    return tidy


def chosen(
    reading: TimeloopReading, word: str, node: YamlNode, known: Mapping[str, str], what: str
) -> str | None:
    """Our name of one of the known words; a fault with the nearest one if it is none."""
    if word in known:
        return known[word]
    message = f"there is no {what} {word}"
    reading.fault(node, message, suggestion(word, known, f"{what}s"), code="unknown-name")
    return None


def letters(text: str, names: Iterable[str]) -> list[str]:
    """`SRQPCKN` as the names in it; the longest one that fits counts, else one letter."""
    result, at, known = [], 0, tuple(names)
    while at < len(text):
        name = max((d for d in known if text.startswith(d, at)), key=len, default=text[at])
        result.append(name)
        at += len(name)
    return result
