"""Every number of a packaged machine has a source.

A source is `[TAG]`, spelt out at the head of the file, or `chosen for illustration`. The comment of a line
has one for each of its numbers. It may go on in the lines below it; the line of writes that is like the one
of reads shares its comment. A sentence at the head (`Energies: ...`, `Clocks and throughputs: ...`,
`All numbers ...`) stands for all numbers of its kind."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from polymodel.spec.files import architectures, packaged

KINDS = {
    "size": "sizes",
    "energy": "energies",
    "throughput": "throughputs",
    "area": "areas",
    "leak_power": "leakages",
    "fanout": "fanouts",
    "clock": "clocks",
    "capacity": "capacities",
    "word_bits": "widths",
    "configuration": "configurations",
    "fill_drain_latency": "latencies",
    "energy_per_bit_hop": "energies",
    "bits_per_action": "widths",
}
NUMBER = re.compile(rf"\b({'|'.join(KINDS)}): (\{{\{{.*?\}}\}}[^,}}]*|\{{[^}}]*\}}|[^,}}]*)")
SOURCE = re.compile(r"\[[A-Za-z]+\d*\]|chosen|Horowitz")


def unsourced(text: str) -> list[str]:
    """The lines with a number that no source is given for."""
    lines = text.splitlines()
    head = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    said = {k for k in set(KINDS.values()) if re.search(rf"(?i)\b{k}\b[^.:]*:|\ball numbers\b", head)}
    known = set(re.findall(r"(\[\w+\])(?= \S)", head))
    result, last = [], ""
    for i, line in enumerate(lines):
        code = line.partition("#")[0].strip()
        numbers = [k for k, v in NUMBER.findall(code) if re.search(r"[1-9]|\{\{", v)]
        same = code.replace("write", "read") == last
        last = code
        told = SOURCE.findall(" ".join(comments(lines[i:], code)))
        asked = [k for k in numbers if KINDS[k] not in said]
        strange = [s for s in told if s.startswith("[") and s not in known]
        if not same and (len(asked) > len(told) or strange):
            result.append(line.strip())
    return result


def comments(lines: list[str], code: str) -> Iterator[str]:
    """That of the first line, and of those below it that go on."""
    for i, line in enumerate(lines):
        own, _, told = line.partition("#")
        if i and own.strip() and own.strip().replace("write", "read") != code:
            return
        yield told


@pytest.mark.parametrize("machine", architectures())
def test_every_number_has_a_source(machine: str) -> None:
    (file,) = packaged(machine).values()
    assert unsourced(file.read_text(encoding="utf-8")) == []


def test_what_has_no_source_is_found() -> None:
    head = "# [A1] A paper.\n# Clocks: chosen for illustration.\n"
    assert unsourced(f"{head}size: 8  # [A1] one\nclock: 2") == []
    assert unsourced(f"{head}size: 8\nclock: 2") == ["size: 8"]
    assert unsourced(f"{head}size: 8  # [B1] another") == ["size: 8  # [B1] another"]
    both = "{name: read, energy: 2, throughput: 3}"
    assert unsourced(f"{head}- {both}  # [A1] two") == [f"- {both}  # [A1] two"]
    assert unsourced(f"{head}- {both}  # [A1] two;\n- {both.replace('read', 'write')}  # three: chosen") == []
    assert unsourced(f"# All numbers are chosen.\n- {both}") == []
