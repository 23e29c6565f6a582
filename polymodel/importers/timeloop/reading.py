"""Read Timeloop's YAML: every key that is read is marked, so that the others can be reported."""

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
MOST_TEXT = 10_000  # characters of an expression that are searched for parts
_DIGITS = 18  # of a number of instances: 64 bits
_RANGE = re.compile(r"\s*\[\s*(\d+)\s*\.\.\s*(\d+)\s*\]\s*\Z")
LARGEST = 2**53
CYCLE = "global_cycle_seconds"
# Variables that the export writes, because Timeloop's files have no key for them: how often the Einsum is
# executed (Timeloop evaluates one execution), the width of values if no memory states it, and the operators.
EXECUTIONS = "problem_executions"
VALUE_BITS = "problem_value_bits"
OPERATIONS = {f"problem_{what}": what for what in ("map", "reduce", "populate")}
RENAMES = "problem_renames"  # names of tensors in architectures: `input: A; weight: B`
DEFAULT_BITS = 8


def plain_key(key: str) -> str:
    """Return the normalised key: `data-spaces`, `data_spaces` and `Data_Spaces` are the same."""
    return key.lower().replace("-", "_")


@dataclass
class TimeloopReading(Findings):
    """Faults and notes found so far, and which keys were read."""

    seen: set[int] = field(default_factory=set)
    variables: dict[str, Value | None] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # variables that are not numbers
    parts: dict[str, Value] = field(default_factory=dict)  # `NAME.attributes.KEY`, `NAME.spatial.KEY`

    def leave(
        self, node: YamlNode, message: str, remedy: str, path: str = "", *, key: str = "", changes: str = ""
    ) -> None:
        """Record something that has no counterpart. `changes`: the figures that differ because of it.

        `key`: its name in `allow=`; without a key it is reported, and the import continues.
        """
        place = node.place()
        self.leave_out(LeftOut(message, remedy, path, place, key=key, changes=changes, refused=bool(key)))

    def inlined(self, text: str) -> str:
        """Return an expression with attributes of earlier parts, such as `Buffer.attributes["depth"]`,
        replaced by numbers."""
        return _OF_A_PART.sub(
            lambda m: str(self.parts.get(f"{m[1]}.{m[2]}.{m[3] or m[4]}", m[0])), text[:MOST_TEXT]
        )

    def take(self, entry: YamlEntry) -> YamlNode:
        """Mark a key as read, and return its value."""
        self.seen.add(id(entry))
        return entry.value

    def whole(self, node: YamlNode) -> None:
        """Mark all keys inside as read."""
        for inner in node.walk():
            self.seen.update(id(e) for e in inner.entries or ())

    def name_the_rest(self, root: YamlNode) -> None:
        """Report every key that was not read as left out, except for content that an alias repeats."""
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
    """Yield (path, key, (name, path) of the innermost enclosing part that has a name or a target)."""
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
    """A mapping of the file, read key by key. `path` is its location, for messages."""

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
        """Return the value of the first of these keys that is present."""
        entry = self._entry(*keys)
        return self.reading.take(entry) if entry else None

    def ignore(self, *keys: str) -> None:
        """Mark keys that add nothing to what is read elsewhere (versions, names of parts)."""
        for key in keys:
            found = self.take(key)
            if found is not None:
                self.reading.whole(found)

    def need(self, *keys: str, example: str) -> YamlNode | None:
        """Return the value as `take` does; a fault if there is none."""
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
        """Return the elements of a list; a single value is treated as a list of one."""
        result = self.take(*keys)
        if result is None or (result.kind == "scalar" and result.scalar is None):
            return ()
        return result.elements if result.elements is not None else (result,)

    def each(self, *keys: str) -> list[Fields]:
        """Return the elements of a list as mappings, each with its path; the first key names them in
        messages."""
        below = self.below(keys[0])
        return [Fields(self.reading, node, f"{below}[{i}]") for i, node in enumerate(self.items(*keys))]

    def text(self, *keys: str) -> str:
        """Return a word, or an empty string if there is none."""
        result = self.take(*keys)
        if result is None or result.scalar is None:
            return ""
        return str(result.scalar)

    def words(self, *keys: str) -> tuple[tuple[str, YamlNode], ...] | None:
        """Return a list of words, which may also be written as one text; None if the key is missing."""
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
        """Return the value of a number or of an expression over the names in scope; None if it is missing or
        faulty."""
        result = self.take(*keys)
        return None if result is None else number_of(self.reading, result, self.scope, self.below(keys[0]))

    def amount(self, *keys: str, least: int = 1) -> Value | None:
        """Return a number above 0, or from 0 on if `least` is 0; infinity is treated as missing."""
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
        """Return a whole number of at least 1."""
        entry = self._entry(*keys)
        if entry is None:
            return None
        return count_of(self.reading, self.reading.take(entry), self.scope, self.below(entry.key))


def number_of(
    reading: TimeloopReading, node: YamlNode, scope: Mapping[str, Value | None], path: str = ""
) -> Value | None:
    """Return the value of a number or expression; anything else is a fault, and the result is None."""
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
    """Return the seconds of a cycle; an impossible value is a fault, and the result is None."""
    value = number_of(reading, node, scope, path)
    if value is None or 0 < value < float("inf"):
        return value
    what = f"a cycle of {value} seconds: it has to be {'above 0' if value <= 0 else 'finite'}"
    remedy = f"write the seconds of one cycle, e.g. `{CYCLE}: 1e-9`"
    reading.fault(node, what, remedy, path, code="out-of-range")
    return None


def mended(fault: TextFault) -> str:
    """Return the remedy for an expression's fault; what it calls symbols are variables in Timeloop."""
    if fault.remedy.startswith("declare it"):
        return "give it a value in `variables:`, or write the number"
    return fault.remedy


def count_of(
    reading: TimeloopReading, node: YamlNode, scope: Mapping[str, Value | None], what: str, least: int = 1
) -> int | None:
    """Return a whole number from `least` to 2^53, otherwise a fault."""
    value = number_of(reading, node, scope, what)
    if value is None:
        return None
    if not least <= value <= LARGEST or value != int(value):
        remedy = f"use a whole number, {least} or more" if value < LARGEST else "keep it below 2**53"
        reading.fault(node, f"{value} is not a size", remedy, what, code="not-positive-integer")
        return None
    return int(value)


def exact(value: Value) -> Fraction:
    """Return the number exactly as written: 2.2 is 11/5."""
    return Fraction(str(value))


def name_and_count(text: str) -> tuple[str, int]:
    """Return ("PE", 16) for `PE[0..15]`; without a range the count is one, and for an impossible range it is
    below 1."""
    match = _RANGE.search(text)
    if match is None:
        return text.strip(), 1
    name = text[: match.start()].strip()
    if max(map(len, match.groups())) > _DIGITS:
        return name, 0
    return name, int(match[2]) - int(match[1]) + 1


def named_instances(reading: TimeloopReading, node: YamlNode, text: str) -> tuple[str, int]:
    """Return `name_and_count`; a range without instances is a fault, and counts as 1."""
    name, count = name_and_count(text)
    if count >= 1:
        return name, count
    message = f"{text[-60:]} is not a range of instances"
    reading.fault(node, message, f"write e.g. {name[:40]}[0..15]", code="syntax-error")
    return name, 1


def tidy_name(reading: TimeloopReading, node: YamlNode, text: str) -> str:
    """Return the text as a valid name: letters, digits and _."""
    if _NAME.match(text):
        return text
    tidy = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "unnamed"
    tidy = tidy if _NAME.match(tidy) else f"_{tidy}"
    reading.note(node, f"{text!r} is called {tidy} here", "names are letters, digits and _")
    return tidy


def chosen(
    reading: TimeloopReading, word: str, node: YamlNode, known: Mapping[str, str], what: str
) -> str | None:
    """Return polymodel's name for one of the known words; an unknown word is a fault that suggests the
    nearest one."""
    if word in known:
        return known[word]
    message = f"there is no {what} {word}"
    reading.fault(node, message, suggestion(word, known, f"{what}s"), code="unknown-name")
    return None


def letters(text: str, names: Iterable[str]) -> list[str]:
    """Split `SRQPCKN` into names: the longest one that fits at each position, otherwise one letter."""
    result, at, known = [], 0, tuple(names)
    while at < len(text):
        name = max((d for d in known if text.startswith(d, at)), key=len, default=text[at])
        result.append(name)
        at += len(name)
    return result
