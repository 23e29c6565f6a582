"""One line of the benchmark's table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
# value and peer in `unit`, ratio = value over peer; peer and ratio None where the peer could not be run.
Row = dict[str, float | str | None]


def clocked(action: Callable[[], Result]) -> tuple[Result, float]:
    """What the action returns, and the seconds of a processor that it takes."""
    start = time.process_time()
    result = action()
    return result, time.process_time() - start


def milliseconds(value: float, peer: float, peer_name: str) -> Row:
    """Two times in seconds, shown in milliseconds: a ratio below 1 is faster than the peer."""
    return _row(value * 1e3, "ms", 3, peer * 1e3, peer_name)


def rate(value: float, peer: float | None, peer_name: str) -> Row:
    """Two rates in points per second: a ratio above 1 is faster than the peer."""
    return _row(value, "points/s", 1, peer, peer_name)


def seconds(value: float, peer: float, peer_name: str) -> Row:
    """Two times in seconds: a ratio below 1 is faster than the peer."""
    return _row(value, "s", 3, peer, peer_name)


def cpu_seconds(value: float, peer: float | None, peer_name: str) -> Row:
    """Two times in seconds of one core: a ratio below 1 is faster than the peer."""
    return _row(value, "CPU s", 3, peer, peer_name)


def megabytes(value: float, peer: float, peer_name: str) -> Row:
    """Two sizes in bytes, shown in megabytes."""
    return _row(value / 1e6, "MB", 1, peer / 1e6, peer_name)


def _row(value: float, unit: str, digits: int, peer: float | None, peer_name: str) -> Row:
    return {
        "value": round(value, digits),
        "unit": unit,
        "peer": None if peer is None else round(peer, digits),
        "ratio": None if peer is None else float(f"{value / peer:.3g}"),
        "peer_name": peer_name,
    }


def table(rows: dict[str, Row]) -> str:
    """The rows as text, one a line."""
    width = max(map(len, rows))
    lines = [f"{'':{width}}  {'value':>10}  {'':8}  {'peer':>10}  {'ratio':>10}  peer"]
    for name, r in rows.items():
        peer, ratio = ("-" if r[key] is None else r[key] for key in ("peer", "ratio"))
        lines.append(
            f"{name:{width}}  {r['value']:>10}  {r['unit']:8}  {peer:>10}  {ratio:>10}  {r['peer_name']}"
        )
    return "\n".join(lines)
