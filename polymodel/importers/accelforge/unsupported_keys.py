"""Explain why a key of AccelForge has no counterpart, and whether figures differ because of it."""

from __future__ import annotations

from polymodel.importers.tables import KeyedTable

_MODELS = ("it is for models of energy and area", "give `energy:` of the actions, or name an `energy_model:`")
_SEARCH = ("it limits a search", "say what to search in `explore:` (docs/howto/explore.md)")
_NAMES = ("it says nothing that is counted", "none is needed")
_REASONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        "component_class component_model extra_attributes_for_component_model attributes"
        " extra_attributes_for_all_component_models component_modeling_log area_scale leak_power_scale"
        " energy_scale throughput_scale latency_scale total_area total_leak_power config subclass".split(),
        _MODELS,
    ),
    **dict.fromkeys(
        "no_refetch_from_above no_resend_to_below force_memory_hierarchy_order back tile_shape"
        " tensor_order_options loop_bounds min_usage reuse enabled mapper constraints power_gateable"
        " tile_shape_constraint support_concurrent_binding".split(),
        _SEARCH,
    ),
    **dict.fromkeys("version model metrics description notes".split(), _NAMES),
}
_OTHER = ("nothing here corresponds to it", "check that the counts do not need it")


def reason(key: str) -> tuple[str, str]:
    """Return why the key is left out, and the remedy."""
    return _REASONS.get(key, _OTHER)


def leave_rest(table: KeyedTable) -> None:
    """Report the keys of a table that were not read; an unknown key may change any count."""
    for entry in table.rest:
        why, remedy = reason(entry.key)
        unknown = entry.key not in _REASONS
        table.reading.leave(
            entry.value, entry.key, why, remedy, table.path, owner=table.owner,
            changes="counts" if unknown else "", refused=unknown,
        )  # fmt: skip
