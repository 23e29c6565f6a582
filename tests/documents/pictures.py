"""The pictures of README.md: `python -m tests.documents.pictures` draws them anew.

A front of fused attention over energy and buffer, and the LoopTree of its best mapping.
"""

from __future__ import annotations

import matplotlib as mpl

import polymodel as pm
from tests.documents.page import ROOT

FOLDER = ROOT / "docs" / "_static"
FRONT, TREE = FOLDER / "front.svg", FOLDER / "looptree.svg"


def main() -> None:
    """Draw both."""
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "polymodel"  # the same bytes each time
    found = pm.explore(pm.load("attention", "simple_two_level"), objectives=["energy", "working_set:GLB"])
    axes = found.plot("working_set:GLB", "energy")
    axes.set_title("Attention: every mapping that no other beats", fontsize=10)
    axes.figure.savefig(FRONT, bbox_inches="tight", metadata={"Date": None})
    pm.draw_looptree(pm.load("attention", "simple_two_level", "attention/tiled_fused")).save(TREE)


if __name__ == "__main__":
    main()
