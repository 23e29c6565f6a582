"""The best mappings that AccelForge's mapper found, beside those of `explore` in the same space.

What its files bind a search by is imported and obeyed: what fanouts must reuse, bounds on loops over them,
their utilisation, tensors that are not fetched again. The objective is energy, where the machine has no
latencies, and else energy times delay.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import polymodel as pm
from tests.reference.common import Outcome

FOUND = "regression_reference.json"
SECONDS = 60.0  # for one search
# Entries whose mapping is none: the best value that ours reached, which later ones keep, and why.
LISTED = {
    "tpu_v4i|gpt3_175B|BATCH_SIZE=1,DECODE=False,N_NEW_TOKENS=2048|fused": (
        0.0663018,
        "the mapping writes the result of AV to GlobalBuffer twice and reads nothing of it there, so that "
        "half of each sum is lost (docs/differences.md)",
    ),
}


def check(root: Path, only: str = "", seconds: float = SECONDS) -> list[Outcome]:
    """One outcome per entry of the stored results. `only`: a part of its key."""
    return [
        _outcome(path.parent, key, figures, seconds)
        for path in sorted(root.rglob(FOUND))
        for key, figures in json.loads(path.read_text(encoding="utf-8")).items()
        if only in key
    ]


def words_of(text: str) -> dict[str, Any]:
    """Values of template variables, as keys of stored results have them."""
    given = dict(w.split("=") for w in text.split(",") if w)
    values = {"True": True, "False": False}
    return {k: values.get(v, int(v) if v.isdigit() else v) for k, v in given.items()}


def _outcome(folder: Path, key: str, figures: dict[str, Any], seconds: float) -> Outcome:
    arch, workload, words, fused = key.split("|")
    outcome = Outcome(f"AccelForge's optimum of {key}")
    files = {p.stem: p for p in folder.rglob("*.yaml")}
    if not {arch, workload} <= files.keys():
        outcome.uncomputed.append("its files are not here")
        return outcome
    objective = "edp" if figures["latency"] else "energy"
    theirs = figures["energy"] * (figures["latency"] or 1)
    begun = process_time()
    try:
        imported = pm.import_accelforge(files[arch], files[workload], **words_of(words))
        front = _explored(imported.text, fused == "fused", objective, seconds)
    except pm.PolymodelError as refused:
        outcome.uncomputed.append(f"refused: {str(refused).splitlines()[0]}")
        return outcome
    outcome.seconds = process_time() - begun
    if len(front):
        ours = front.best().value(objective)
        if not ours:
            outcome.uncomputed.append("its prices are those of models of components, which are not here")
            return outcome
        bound = theirs * (1 + 1e-6)  # prices there have float32's digits
        if key in LISTED and ours > bound:
            bound, reason = LISTED[key]
            outcome.listed.append(f"{objective} ours {ours:.6g}, reference {theirs:.6g}: {reason}")
        outcome.at_most(objective, ours, bound)
        outcome.notes.append(f"{objective} ours {ours:.6g}, theirs {theirs:.6g}, gap {front.gap:.2g}")
    else:
        outcome.fault = front.reason.splitlines()[0]
    return outcome


def _explored(text: str, fused: bool, objective: str, seconds: float) -> pm.Front:
    """The search. There a memory that keeps `~MainMemory` keeps what a mapping does not have in MainMemory:
    intermediates are handed on in either, and what is in MainMemory need not be in the other one as well."""
    constraints: dict[str, object] = {"exchange": []} if fused else {"unfused": "Intermediates"}
    text = re.sub(r"keep: ~MainMemory\.tensors", "keep: Nothing", text)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(text, encoding="utf-8")
        spec = pm.load(path)
    return pm.explore(spec, objectives=objective, constraints=constraints, time_limit=seconds)
