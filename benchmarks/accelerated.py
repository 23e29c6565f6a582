"""Sweeps on an accelerator, where there is one, beside the same on one core."""

from __future__ import annotations

import time
from collections.abc import Mapping

import polymodel as pm
from benchmarks.rows import Row, rate
from polymodel.libraries import installed
from polymodel.sweeps.values import Choice

Grids = Mapping[str, tuple[pm.Spec, Mapping[str, Choice]]]


def accelerated(grids: Grids, large: Grids) -> dict[str, Row]:
    """Points per second of whole sweeps that look at every point, compilers included, the second time.

    Nothing without an accelerator. `large`: what takes one core minutes, beside its rate on the first grid.
    """
    if not installed("jax"):
        return {}
    rows: dict[str, Row] = {}
    core = 0.0
    for name, (spec, symbols) in grids.items():
        try:
            timed(spec, symbols, "gpu")
        except pm.SpecError:
            return {}
        found, took = timed(spec, symbols, "gpu")
        plain, alone = timed(spec, symbols, "cpu")
        if not found.frame.equals(plain.frame) or found.infeasible != plain.infeasible:
            raise AssertionError(f"{name}: an accelerator gives other results")
        core = core or plain.evaluated / alone
        shown = f"{name}, on an accelerator, {found.evaluated:.2g} points"
        rows[shown] = rate(found.evaluated / took, plain.evaluated / alone, "one core")
    for name, (spec, symbols) in large.items():
        timed(spec, symbols, "gpu")
        found, took = timed(spec, symbols, "gpu")
        shown = f"{name}, on an accelerator, {found.evaluated:.2g} points"
        rows[shown] = rate(found.evaluated / took, core, "one core, at fewer points")
    return rows


def timed(spec: pm.Spec, symbols: Mapping[str, Choice], device: str) -> tuple[pm.Sweep, float]:
    """A sweep of every point, and its seconds."""
    start = time.perf_counter()
    found = pm.sweep(spec, symbols, prune=False, device=device)
    if any("not the accelerator" in note for note in found.notes):
        raise AssertionError(found.notes)
    return found, time.perf_counter() - start
