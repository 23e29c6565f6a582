"""Why a key of Timeloop has no counterpart, and what to do instead."""

from __future__ import annotations

from polymodel.importers.imported import LeftOut
from polymodel.spec.faults import YamlEntry

_ENERGY = (
    "it serves estimators of energy and area",
    "give energies: import the ERT (and ART) that Accelergy wrote, or add actions: by hand",
)
_SEARCH = ("it steers Timeloop's search", "say what to search in `explore:` (docs/howto/explore.md)")
_DETAIL = ("it changes no count of words", "none is needed for counts")
_REASONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        "technology class subclass latency cycle_time n_banks n_rdwr_ports n_rd_ports n_wr_ports n_ports"
        " num_ports voltage process type required_actions leakage energy_scale area_scale area_share"
        " data_width vdd"
        " has_power_gating power_gated required_attributes subcomponents components compound_components"
        " accelergy_parser actions multiplier_width adder_width datawidth"
        " static_power num_bits widthmul adc_resolution".split(),
        _ENERGY,
    ),
    **dict.fromkeys(
        "mapper mapspace temporal spatial mapspace_constraints constraints "
        " architecture_constraints map_constraints"
        " arch_constraints factors factors_only permutation split maximize_dims no_iteration_over_dataspaces"
        " must_iterate_over_dataspaces default_max_factor default_min_factor remainders"
        " maximize_dims_capacity".split(),
        _SEARCH,
    ),
    **dict.fromkeys(
        "n_words_per_cycle num_clusters banks network_read network_write network_drain"
        " network_update network_fill bandwidth_consumption_scale tile_width wire_energy"
        " router_energy placement".split(),
        _DETAIL,
    ),
    "rmw_first_update": (
        "the first update of a partial sum writes it here without reading it",
        "add one read per element of these tensors to the reads of this storage, by hand",
    ),
    "no_link_transfer": ("here no instance passes data to its neighbour", "none is needed for counts"),
    **dict.fromkeys(
        ("allow_overbooking", "max_overbooked_proportion"),
        (
            "a tile that is larger than its storage is infeasible here",
            "give the storage a larger depth, or choose smaller tiles",
        ),
    ),
    **dict.fromkeys(
        ("ert_summary", "art_summary"), ("it repeats what the tables say", "none is needed where ERT is read")
    ),
    **dict.fromkeys(
        ("min_utilization", "min_utilisation", "min_parallelism"),
        (
            "no rule of a search here says which share of a storage tiles must fill, and shares of instances"
            " are constraints of type `utilization`",
            "for instances, write `explore: {min_utilisation: {...}}` (docs/explore.md)",
        ),
    ),
    "dumped_by_timeloop_front_end": ("it configures Timeloop's own tools", "none is needed"),
    "reduction_supported": (
        "every storage adds partial sums here",
        "check that the mapping needs none where it is false",
    ),
    "globals": ("it configures Timeloop's own tools", "none is needed"),
    "compound_config": ("it configures Timeloop's own tools", "none is needed"),
    "environment_variables": ("it configures Timeloop's own tools", "none is needed"),
    "<<<": ("only `<<` merges mappings here", "write `<<: *anchor`, or repeat the keys"),
    "flattened_rankids": ("a flattened rank has no format here", "give one format per rank"),
    "optimize_spatial_tile": _SEARCH,
    "power_gated_at": ("leakage has one value per component", "none is needed for counts"),
    "no_coalesce": ("words are counted here, not vectors of them", "none is needed for counts"),
    "no_reuse": ("this reuse cannot be switched off alone", "compare with `reuse: refill` at this storage"),
    "no_temporal_reuse": (
        "this reuse cannot be switched off alone",
        "compare with `reuse: refill` at this storage",
    ),
}


# The figures that an unread key changes, and the values with which it changes nothing.
_OFF: tuple[object, ...] = (None, False, 0, "", "no", "false")
_EFFECTS: dict[str, tuple[str, tuple[object, ...]]] = {
    "no_reuse": ("counts", _OFF),
    "no_temporal_reuse": ("counts", _OFF),
    "rmw_first_update": ("counts", _OFF),
    "bandwidth_consumption_scale": ("latency", (None, 1, 1.0)),
    "allow_overbooking": ("capacity", _OFF),
}


def _changes(entry: YamlEntry, key: str) -> str:
    """Return the figures that a key changes; empty if the key, or its value, changes none."""
    what, neutral = _EFFECTS.get(key, ("", ()))
    value = entry.value
    unchanged = value.elements == () or (value.kind == "scalar" and value.scalar in neutral)
    return "" if unchanged else what


def left_out_key(entry: YamlEntry, key: str, path: str, below: str, owner: str) -> LeftOut:
    """Return the note on a key that was not converted: `key`, its normalised spelling; `below`, its path in
    `owner`."""
    why, remedy = _REASONS.get(
        key, ("nothing here corresponds to it", "check that the counts do not need it")
    )
    place = entry.source.place(entry.line, entry.column)
    message = f"`{entry.key}` is not converted: {why}"
    changes = _changes(entry, key)
    return LeftOut(message, remedy, path, place, key=below, owner=owner, why=why, changes=changes)
