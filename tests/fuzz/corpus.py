"""What inputs are made of: the files that are shipped, and those of the tests."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SMALL = 12_000  # bytes of a file worth changing


def _files(*patterns: str) -> list[Path]:
    return sorted(p for pattern in patterns for p in ROOT.glob(pattern) if p.stat().st_size < SMALL)


@cache
def specs() -> tuple[bytes, ...]:
    """Whole specs, architectures, workloads and mappings; the starter among them."""
    from polymodel.report.starter import STARTER

    found = _files(
        "arch/*.yaml", "workloads/*.yaml", "workloads/*/*/*.yaml", "tests/bad/*.yaml", "tests/spec/*.yaml"
    )
    return (STARTER.encode(), *(p.read_bytes() for p in found))


@cache
def whole() -> tuple[bytes, ...]:
    """Specs with all three parts in one file, which get as far as the checks of mappings."""
    found = [s for s in specs() if all(k in s for k in (b"arch:", b"workload:", b"mapping:"))]
    spec = (ROOT / "tests/spec/two_matmuls.yaml").read_bytes()
    return (spec, spec, *found)


@cache
def templates() -> tuple[bytes, ...]:
    """Files with Jinja in them."""
    return tuple(s for s in specs() if b"{{" in s or b"{%" in s)


@cache
def teaal() -> tuple[bytes, ...]:
    """TeAAL specs."""
    found = _files("workloads/teaal/*.yaml", "workloads/tensaurus/*.yaml", "tests/spec/teaal/**/*.yaml")
    return tuple(p.read_bytes() for p in found)


@cache
def trees(which: Callable[[], tuple[bytes, ...]]) -> tuple[yaml.Node, ...]:
    """The YAML of those that are YAML."""
    found = []
    for text in which():
        try:
            node = yaml.compose(text.decode(), Loader=yaml.CSafeLoader)
        except (yaml.YAMLError, UnicodeDecodeError):
            continue
        if isinstance(node, yaml.MappingNode):
            found.append(node)
    return tuple(found)


def _head(text: bytes, lines: int) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:lines])


@cache
def market() -> tuple[bytes, ...]:
    """Matrix Market texts of every layout, field and symmetry."""
    start = "%%MatrixMarket matrix "
    made = [
        f"{start}coordinate real general\n% c\n3 4 3\n1 1 1.5\n2 3 -2e3\n3 4 0\n",
        f"{start}coordinate integer symmetric\n3 3 3\n1 1 4\n2 1 5\n3 3 6\n",
        f"{start}coordinate pattern general\n2 2 2\n1 1\n2 2\n",
        f"{start}coordinate complex hermitian\n2 2 2\n1 1 1 0\n2 1 1 -2\n",
        f"{start}coordinate real skew-symmetric\n3 3 1\n3 1 1.0D3\n",
        f"{start}array real general\n2 3\n1\n2\n3\n4\n5\n6\n",
        f"{start}array real symmetric\n2 2\n1\n2\n3\n",
        f"{start}array complex skew-symmetric\n2 2\n1 2\n",
        f"{start}coordinate real general\r\n2 2 1\r\n1 2 3\r\n",
    ]
    shipped = [_head(p.read_bytes(), 30) for p in sorted((ROOT / "tests").rglob("*.mtx"))[:6]]
    unpacked = [
        _head(gzip.decompress(p.read_bytes()), 20)
        for p in sorted((ROOT / "tests/data").rglob("*.mtx.gz"))[:3]
    ]
    return (*(m.encode() for m in made), *shipped, *unpacked)


@cache
def frostt() -> tuple[bytes, ...]:
    """FROSTT texts, with and without comments that say what they are."""
    made = [
        "1 1 1 1.5\n2 3 4 2\n",
        "# shape: 3 4 5\n# field: integer\n1 2 3 4\n3 4 5 -6\n",
        "# shape: 2x2\n# field: pattern\n1 1\n2 2\n",
        "1 1 1 1 1e3\n",
        "5 7\n",
        "% a comment\n\n 1\t2  3 \n",
        "",
    ]
    return tuple(m.encode() for m in made)


@cache
def energies() -> tuple[bytes, ...]:
    """Energy tables."""
    found = [p.read_bytes() for p in sorted((ROOT / "tests").rglob("*.csv")) if p.stat().st_size < SMALL]
    rows = "DRAM,read,7e-12,book\nDRAM,write,8e-12\nGLB,area,1.0e-6,x\nGLB,read,1/3,y\n"
    made = f"component,quantity,value,source\n{rows}"
    return (made.encode(), *(f for f in found if b"component" in f))
