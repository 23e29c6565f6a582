"""What a call of `graph_slope` asks for: its curves, and its switches as rules."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from polymodel.slopes.fused_graph import Kind
from polymodel.slopes.fusion_rules import ROLES, FusionRules, Operands
from polymodel.slopes.options import TRUTH, SlopeOptions
from polymodel.workload.einsum import Cascade

CURVES = ("unfused", "untiled_fused", "tiled_fused")


def kinds_of(rules: FusionRules) -> dict[str, tuple[Kind, ...]]:
    """How each curve lets a shared tensor be handed on."""
    freed: tuple[Kind, ...] = () if rules.head_is_tiled_fusion else ("headed",)
    return {
        "unfused": ("backing",),
        "untiled_fused": ("backing", "whole", *freed),
        "tiled_fused": ("backing", "whole", *freed, "tiled"),
    }


def curves_asked(options: SlopeOptions, curves: object) -> tuple[str, ...]:
    before = len(options.faults)
    result = options.names(("curves",), curves, CURVES, "curve")
    if not result and len(options.faults) == before:
        options.faults.add(("curves",), "a slope needs a curve", f"name some of {', '.join(CURVES)}")
    return result


def rules_asked(
    options: SlopeOptions, plain: FusionRules, uneven: object, roles: object, cascade: Cascade
) -> FusionRules:
    """The switches of a call as rules, with the names in `uneven` and `roles`."""
    options.choice(("operands",), plain.operands, get_args(Operands), "choice")
    return replace(
        plain,
        head=options.truth("head", plain.head),
        batch=options.truth("batch", plain.batch),
        head_is_tiled_fusion=options.truth("head_is_tiled_fusion", plain.head_is_tiled_fusion),
        uneven=_uneven(options, uneven, cascade),
        partial_overlap=options.truth("partial_overlap", plain.partial_overlap),
        equal_outer_sizes=options.truth("equal_outer_sizes", plain.equal_outer_sizes),
        roles=_roles(options, roles, cascade),
    )


def _uneven(options: SlopeOptions, uneven: object, cascade: Cascade) -> bool | tuple[str, ...]:
    if isinstance(uneven, TRUTH):
        return bool(uneven)
    named = {t for e in cascade for t in e.tensors} | {n for e in cascade for n, _ in e.renames}
    return options.names(("uneven",), uneven, sorted(named), "tensor or rename")


def _roles(options: SlopeOptions, roles: object, cascade: Cascade) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Per role the ranks and rank variables that have it."""
    ranks = {r for e in cascade for a in e.accesses for r in a.ranks}
    known = sorted(ranks | {v for e in cascade for v in e.rank_variables})
    result = []
    given = {} if roles is None else options.table("roles", roles, "roles", '{"head": ["H"]}')
    for role, names in given.items():
        options.choice(("roles", str(role)), role, ROLES, "role")
        result.append((role, options.names(("roles", str(role)), names, known, "rank")))
    return tuple(result)
