"""What the tests of traffic share: designs, evictions of the SpMM study, inputs as points and as tensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import yaml

import polymodel as pm

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests/reference/cases/teaal"
DESIGNS = {
    "gamma": "gamma_traffic",
    "outerspace": "outerspace_traffic",
    "extensor": "extensor",
    "sigma": "sigma_traffic",
}
# Ranks that TeAAL's runs set to format U on the tensors themselves.
WALKED = {"gamma": {"A": ("M",), "B": ("K",)}, "outerspace": {"A": ("K",), "B": ("K",)}}


def design(name: str) -> str:
    return (ROOT / f"workloads/teaal/{DESIGNS[name]}.yaml").read_text()


def spmm(b_evict: str, a_evict: str) -> str:
    """Tensaurus' SpMM on buffets, with the eviction of B and of A's rank J."""
    text = (ROOT / "tests/reference/specs/teaal_spmm_dram.yaml").read_text()
    text = text.replace("rank: K0, type: payload, format: default, evict-on: root", f"{_B}{b_evict}")
    for kind in ("coord", "payload"):
        bound = f"rank: J, type: {kind}, format: default, evict-on: "
        assert bound + "I0" in text
        text = text.replace(bound + "I0", bound + a_evict)
    return text


_B = "rank: K0, type: payload, format: default, evict-on: "


def plain(text: str) -> dict:
    return yaml.safe_load(text)


def cases(name: str) -> list[dict]:
    return json.loads((CASES / name).read_text())["cases"]


def points(data: dict) -> dict[tuple[int, ...], int]:
    """A tensor of a case, sparse or dense, as coordinates -> value."""
    if "dense" in data:
        array = np.array(data["dense"])
        return {tuple(int(c) for c in at): int(array[tuple(at)]) for at in np.argwhere(array)}
    return {tuple(c): v for c, v in zip(data["coords"], data["values"], strict=True)}


def tensor(name: str, ranks, sizes, found: dict[tuple[int, ...], int]) -> pm.SparseTensor:
    """The same as a SparseTensor."""
    coords = np.array(sorted(found), dtype=np.int64).reshape(-1, len(ranks)).T
    values = [found[p] for p in sorted(found)]
    return pm.SparseTensor.from_coo(
        name, ranks, [sizes[r] for r in ranks], coords, np.array(values, dtype=int)
    )
