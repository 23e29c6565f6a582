"""The `format` section: named configurations of each tensor's format, rank by rank."""

from __future__ import annotations

from typing import Literal, get_args, get_type_hints

from polymodel.spec.base import shown
from polymodel.spec.faults import Path, suggestion
from polymodel.spec.teaal.einsum_section import EinsumSection
from polymodel.spec.teaal.mapping_section import MappingSection
from polymodel.spec.teaal.records import RankFormat, TensorFormat
from polymodel.spec.teaal.walk import TreeWalk

BITS = ("cbits", "pbits", "fhbits", "rhbits")
KEYS = ("format", *BITS, "layout")
_HINTS = get_type_hints(RankFormat)
_EXAMPLE = "A: {default: {rank-order: [M, K], M: {format: U}, K: {format: C, cbits: 32, pbits: 64}}}"


def read_formats(
    data: object, einsums: EinsumSection, mapping: MappingSection, walk: TreeWalk
) -> tuple[TensorFormat, ...]:
    """Read and check the section; all faults are collected."""
    path: Path = ("format",)
    result: list[TensorFormat] = []
    for tensor, table in walk.mapping(data, path, _EXAMPLE).items():
        at = (*path, tensor)
        if tensor not in einsums.declaration:
            walk.unknown(at, "tensor", tensor, einsums.declaration)
            continue
        known = stored_ranks(tensor, einsums, mapping)
        configurations = walk.mapping(table, at, _EXAMPLE)
        if configurations and all(_is_rank(v) for v in configurations.values()):
            # The older spelling has one format, without a name.
            result.append(
                _configuration(tensor, "default", configurations, tuple(configurations), at, known, walk)
            )
            continue
        for name, ranks in configurations.items():
            here = (*at, name)
            listed = walk.mapping(ranks, here, _EXAMPLE)
            if "rank-order" not in listed:
                message = "key `rank-order` is missing"
                walk.add(here, message, "add `rank-order:`, the ranks as stored", code="missing-key")
            order = walk.names(listed.get("rank-order"), (*here, "rank-order"), "rank", "rank-order: [M, K]")
            given = {r: v for r, v in listed.items() if r != "rank-order"}
            result.append(_configuration(tensor, name, given, order, here, known, walk))
    return tuple(result)


def stored_ranks(tensor: str, einsums: EinsumSection, mapping: MappingSection) -> tuple[str, ...]:
    """Every name that a rank of the tensor has before, during or after partitioning."""
    own = einsums.declaration[tensor]
    result = dict.fromkeys(own)
    for ranks in mapping.ranks.values():
        result.update((r, None) for r, roots in ranks.origin.items() if set(roots) & set(own))
        splits = [r for r in ranks.origin if r[-1:].isdigit()]
        for rank in own:
            if rank in ranks.compound:
                # A rank of index math is split where one of its variables is.
                result.update((rank + r[len(ranks.origin[r][0]) :], None) for r in splits)
    return tuple(result)


def _is_rank(value: object) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and not any(isinstance(v, (dict, list)) for v in value.values())
    )


def _configuration(
    tensor: str,
    name: str,
    given: dict[str, object],
    order: tuple[str, ...],
    path: Path,
    known: tuple[str, ...],
    walk: TreeWalk,
) -> TensorFormat:
    for i, rank in enumerate(order):
        if rank not in known:
            at = (*path, "rank-order", i) if name != "default" or rank not in given else (*path, rank)
            message = f"unknown rank {rank} of {tensor}"
            walk.add(at, message, suggestion(rank, known, "its ranks"), code="unknown-name")
    formats: dict[str, RankFormat] = {}
    for rank, value in given.items():
        if rank not in order:
            walk.unknown((*path, rank), "rank", rank, order, "ranks of its rank-order")
        formats[rank] = _rank_format(rank, value, (*path, rank), walk)
    return TensorFormat(tensor, name, tuple(formats.get(r, RankFormat(r)) for r in order), order)


def _rank_format(rank: str, data: object, path: Path, walk: TreeWalk) -> RankFormat:
    given = walk.mapping(data, path, "{format: C, cbits: 32, pbits: 64}")
    walk.keys(given, path, KEYS)
    bits: dict[str, int | None] = {}
    for key in BITS:
        bits[key] = walk.count(given[key], (*path, key), 0) if key in given else None
    words: dict[str, str] = {}
    for key in ("format", "layout"):
        options = get_args(_HINTS[key])
        words[key] = options[0]
        if key in given and given[key] not in options:
            near = suggestion(str(given[key]), options, "write one of")
            message = f"{shown(given[key])} is not a valid {key} of a rank"
            walk.add((*path, key), message, near, code="unknown-choice")
        elif key in given:
            words[key] = str(given[key])
    kind: Literal["C", "U", "B"] = "U" if words["format"] == "U" else "B" if words["format"] == "B" else "C"
    layout: Literal["contiguous", "interleaved"]
    layout = "interleaved" if words["layout"] == "interleaved" else "contiguous"
    return RankFormat(rank, kind, bits["cbits"], bits["pbits"], bits["fhbits"], bits["rhbits"], layout)
