"""Tiles that stay allocated while other Einsums run: counted one by one when small, refused when not."""

from __future__ import annotations

import pytest

from polymodel.analysis.engine import Engine, Problem
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.exact import sweep
from polymodel.errors import Refused
from polymodel.mapping.looptree import Split, StorageNode
from tests.analysis.small import dram, einsum, glb, loop, mac, problem

EXACT: Engine = exact_engine


def _chain(m: int, k: int, shared: bool) -> Problem:
    """T = A W, then O = T V; the tile of W is carried across rows while the second Einsum runs."""
    sizes = {"m": m, "k": k, "n": 2}
    e0 = einsum("E0", "A[m,k]", "W[k]", "T[m]", sizes=sizes)
    e1 = einsum("E1", "T[m]", "V[n]", "O[m,n]", sizes=sizes)
    held = StorageNode("GLB", ("W",), "slide")
    top = dram("A", "W", "V", "O")
    if shared:
        return problem(
            (e0, e1), top, loop("m", 1), glb("T"), Split(((held, mac("E0")), (glb("V"), mac("E1"))))
        )
    first, second = (held, loop("m", 1), mac("E0")), (glb("V"), loop("m", 1), mac("E1"))
    return problem((e0, e1), top, glb("T"), Split((first, second)))


@pytest.mark.parametrize("shared", [True, False])
def test_carried_tile_counts_in_the_other_branch(shared: bool) -> None:
    small = _chain(3, 4, shared)
    ours = {(w.einsum, w.component): w.bits for w in EXACT.analyse(small).working_sets if w.measure == "tile"}
    referee = REFEREE.analyse(small).working_sets
    assert ours == {(w.einsum, w.component): w.bits for w in referee if w.measure == "tile"}
    held = 8 * (4 + 1 + 2) if shared else 8 * (3 + 2)
    assert ours["E1", "GLB"] == held


def test_remedy_of_the_refusal_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_OPERATIONS", 100)
    with pytest.raises(Refused, match="too many to list") as refusal:
        EXACT.analyse(_chain(20, 30, shared=True))
    assert "share no loops" in refusal.value.remedy
    rows = EXACT.analyse(_chain(20, 30, shared=False)).working_sets
    assert {w.bits for w in rows if (w.einsum, w.measure) == ("E1", "tile") and w.component == "GLB"} == {
        8 * (20 + 2)
    }
