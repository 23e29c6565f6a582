"""Inputs made of shipped ones by slips and by malice; the same random numbers make the same input."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from random import Random

import yaml

NUMBERS = (
    "0", "-0", "1", "-1", "2", "7", "255", "65536", "2147483648", "4294967295", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e18", "1e19", "1e60", "1e61",
    "1e308", "1e309", "1e-400", "nan", "NaN", "inf", "-inf", ".inf", ".nan", "Infinity", "1_000", "0x10",
    "0b1", "0o7", "1.5", ".5", "5.", "1e", "--1", "+1", "1/0", "1%0", "2**64", "2**200", "9**9**9", "1:30",
    "1" * 39, "1" * 41, "9" * 400, "9" * 5000, "٣", "²", "1,5", "1 2", "True", "false", "null", "~",
)  # fmt: skip
WORDS = (
    "", " ", "\t", "\n", "\r\n", "\0", "\ufeff", "\u2028", "\x85", "\x1b[31m", "é", "𝔪", "\ud7ff", "&a",
    "*a", "<<: *a", "!!python/object:os.system", "!Storage", "!Pipeline", "!x", "---", "...", "%YAML 1.1",
    "{", "}", "[", "]", "(", ")", ":", ",", "-", "|", ">", "?", "#", "'", '"', "`", "@", "~", "|-\n", "{{",
    "}}", "{%", "%}", "{#", "#}", "{{ 9**9 }}", "{% for i in range(9) %}x{% endfor %}",
    "{{ [].__class__ }}", "All", "Nothing", "Other", "Inputs", "Outputs()", ".tensors", ".rank_variables",
    "default", "__class__", "lambda", "and", "or", "not", "mod", "exists", "if", "else", "**", "//", "<=",
    ">=", "==", "!=", "&&", "||", "../", "/etc/passwd", "/dev/zero", "%s", "%n", "name", "type", "nodes",
    "einsums", "symbols",
)  # fmt: skip
_NUMBER = re.compile(r"[0-9][0-9.e+-]*")
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def bytewise(random: Random, data: bytes, others: Sequence[bytes] = (), most: int = 8) -> bytes:
    """Bits, bytes and pieces of `data` changed, cut, doubled, moved, or taken from `others`."""
    found = bytearray(data)
    for _ in range(random.randint(1, most)):
        _BYTES[random.randrange(len(_BYTES))](random, found, others)
    return bytes(found)


def _length(random: Random, usual: float) -> int:
    return 1 + int(min(random.expovariate(1 / usual), 1000))


def _flip(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _write(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 9, 10, 13, 32, 127, 128, 255, *b"0-.e%#"))


def _insert(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = random.randint(0, len(data))
    data[at:at] = random.choice((*NUMBERS, *WORDS)).encode()


def _cut(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = random.randint(0, len(data))
    del data[at : at + _length(random, 12)]


def _shorten(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if random.random() < 0.2:
        del data[random.randint(0, len(data)) :]


def _double(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = random.randint(0, len(data))
    piece = bytes(data[at : at + _length(random, 20)])
    data[at:at] = piece * random.choice((1, 1, 2, 50))


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if others:
        other = random.choice(others)
        at, start = random.randint(0, len(data)), random.randint(0, len(other))
        data[at : at + random.randint(0, 40)] = other[start : start + _length(random, 60)]


def _line(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    lines = data.split(b"\n")
    a, b = random.randrange(len(lines)), random.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    if random.random() < 0.3:
        lines[a] = b" " * random.randint(1, 4) + lines[a]
    data[:] = b"\n".join(lines)


_BYTES: tuple[Callable[[Random, bytearray, Sequence[bytes]], None], ...] = (
    _flip, _write, _insert, _insert, _cut, _shorten, _double, _splice, _line,
)  # fmt: skip


def wordwise(random: Random, text: str, words: Sequence[str], most: int = 4) -> str:
    """Some tokens of the text replaced, left out, doubled or put in: the result is often still valid."""
    pieces = _TOKEN.findall(text)
    for _ in range(random.randint(1, most)):
        if not pieces:
            pieces = [""]
        at = random.randrange(len(pieces))
        act = random.randrange(6)
        if act == 0:
            numbers = [i for i, p in enumerate(pieces) if _NUMBER.fullmatch(p)]
            pieces[random.choice(numbers) if numbers else at] = random.choice(NUMBERS)
        elif act == 1:
            pieces[at] = random.choice(words)
        elif act == 2:
            pieces[at] = random.choice(pieces)
        elif act == 3:
            pieces.insert(at, random.choice((*words, *WORDS)))
        elif act == 4:
            del pieces[at]
        else:
            other = random.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
    return "".join(pieces)


def treewise(random: Random, root: yaml.Node, most: int = 3) -> str:
    """A YAML document with values, keys, tags and whole branches changed; always YAML, seldom sensible."""
    root = copy.deepcopy(root)
    for _ in range(random.randint(1, most)):
        nodes = list(_nodes(root))
        holders = [n for n in nodes if isinstance(n, yaml.CollectionNode) and n.value]
        if holders:
            _TREES[random.randrange(len(_TREES))](random, random.choice(holders), nodes)
    return yaml.serialize(root, width=100)


def _nodes(root: yaml.Node) -> list[yaml.Node]:
    found, seen = [root], {id(root)}
    for node in found:
        if isinstance(node, yaml.SequenceNode):
            below = node.value
        elif isinstance(node, yaml.MappingNode):
            below = [n for pair in node.value for n in pair]
        else:
            below = []
        found += [n for n in below if id(n) not in seen]
        seen |= {id(n) for n in below}
        if len(found) > 5000:
            break
    return found


def _scalar(random: Random, nodes: list[yaml.Node]) -> yaml.Node:
    if random.random() < 0.5:
        scalars = [n for n in nodes if isinstance(n, yaml.ScalarNode)]
        return copy.deepcopy(random.choice(scalars)) if scalars else nodes[0]
    text = random.choice(NUMBERS if random.random() < 0.7 else WORDS)
    style = None if text.isascii() and text.isprintable() and text[:1].isalnum() else '"'
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=style)


def _put(random: Random, holder: yaml.CollectionNode, value: yaml.Node) -> None:
    at = random.randrange(len(holder.value))
    holder.value[at] = (holder.value[at][0], value) if isinstance(holder, yaml.MappingNode) else value


def _replace(random: Random, holder: yaml.CollectionNode, nodes: list[yaml.Node]) -> None:
    _put(random, holder, _scalar(random, nodes))


def _graft(random: Random, holder: yaml.CollectionNode, nodes: list[yaml.Node]) -> None:
    _put(random, holder, copy.deepcopy(random.choice(nodes)))


def _share(random: Random, holder: yaml.CollectionNode, nodes: list[yaml.Node]) -> None:
    """An alias, at times of what it stands in: YAML can say that."""
    _put(random, holder, random.choice(nodes))


def _drop(random: Random, holder: yaml.CollectionNode, _: list[yaml.Node]) -> None:
    del holder.value[random.randrange(len(holder.value))]


def _again(random: Random, holder: yaml.CollectionNode, _: list[yaml.Node]) -> None:
    one = random.choice(holder.value)
    holder.value[0:0] = [copy.deepcopy(one) for _ in range(random.choice((1, 1, 2, 30)))]


def _tag(random: Random, holder: yaml.CollectionNode, nodes: list[yaml.Node]) -> None:
    holder.tag = random.choice([n.tag for n in nodes] + ["!Pipeline", "!Spatial", "!Toll", "!x"])


def _key(random: Random, holder: yaml.CollectionNode, nodes: list[yaml.Node]) -> None:
    if isinstance(holder, yaml.MappingNode):
        at = random.randrange(len(holder.value))
        holder.value[at] = (_scalar(random, nodes), holder.value[at][1])


def _swap(random: Random, holder: yaml.CollectionNode, nodes: list[yaml.Node]) -> None:
    random.shuffle(holder.value)


def _slip(random: Random, holder: yaml.CollectionNode, nodes: list[yaml.Node]) -> None:
    scalars = [n for n in nodes if isinstance(n, yaml.ScalarNode)]
    if scalars:
        node = random.choice(scalars)
        node.value = wordwise(random, node.value, (*NUMBERS, *(s.value for s in scalars[:50])), 2)
        node.style = '"' if not node.value.isprintable() else node.style


_TREES: tuple[Callable[[Random, yaml.CollectionNode, list[yaml.Node]], None], ...] = (
    _replace, _replace, _graft, _share, _drop, _again, _tag, _key, _swap, _slip, _slip,
)  # fmt: skip
