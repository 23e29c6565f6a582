"""The schema of a TeAAL spec, from the tables that its readers check with."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from polymodel.spec.schemas.build import NAME, described
from polymodel.spec.schemas.texts import Said, entry
from polymodel.spec.teaal import bindings, einsum_section, formats, hardware, mapping_section
from polymodel.spec.teaal.records import RankFormat

Json = dict[str, Any]
_NAMES: Json = {"type": ["array", "string", "null"], "items": {"type": "string"}}
_TEXT: Json = {"type": "string"}
_SIZE: Json = {"type": ["number", "string"]}
_STAMPS: Json = {"type": ["array", "string", "null"], "items": {"type": "string"}}
TEXTS: dict[str, Said] = {
    "einsum": entry("Tensors and expressions: what is computed."),
    "einsum.declaration": entry("Tensor -> its ranks, upper case.", {"A": ["K", "M"]}),
    "einsum.expressions": entry(
        "Einsums in order, each named after its output.", ["Z[m, n] = A[k, m] * B[k, n]"]
    ),
    "einsum.operations": entry(
        "Einsum -> the operators that `*` (`map`) and `+` (`reduce`) stand for.",
        {"Z": {"map": "add", "reduce": "min"}},
    ),
    "einsum.rank_sizes": entry("Rank -> size. Left out, the data or a symbol give it.", {"K": 64}),
    "einsum.bits_per_value": entry("Tensor (or All) -> bits of one value.", {"All": 32}),
    "einsum.init": entry("Tensor -> what is before its first generation: a number, or `identity`.", {"S": 0}),
    "mapping": entry("How each Einsum runs."),
    "mapping.rank-order": entry("Tensor -> ranks in the order in which they are stored.", {"A": ["M", "K"]}),
    "mapping.partitioning": entry(
        "Einsum -> rank -> splits, outermost first: uniform_shape(32), nway_shape(4), "
        "uniform_occupancy(A.32), flatten(), follow(A).",
        {"Z": {"K": ["uniform_shape(32)"]}},
    ),
    "mapping.loop-order": entry(
        "Einsum -> ranks after partitioning, outermost first.", {"Z": ["M", "N", "K"]}
    ),
    "mapping.spacetime": entry("Einsum -> which ranks run in space and which in time."),
    "spacetime.space": entry("Ranks that run side by side; `K.coord` stamps by coordinate.", ["M"]),
    "spacetime.time": entry("Ranks that run one after the other.", ["K", "N"]),
    "spacetime.opt": entry("`slip`: instances need not keep in step."),
    "spacetime.fanout": entry("Space rank -> fanout dimension of an architecture.", {"M": "PE.X"}),
    "format": entry("Tensor -> configuration -> format of each rank."),
    "rank.rank-order": entry("Ranks of the tensor as this configuration stores them.", ["M", "K"]),
    "rank.format": entry("`C` compressed, `U` uncompressed, `B` bit mask."),
    "rank.cbits": entry("Bits of a coordinate.", 32),
    "rank.pbits": entry("Bits of a payload.", 64),
    "rank.fhbits": entry("Bits of a fiber's header.", 32),
    "rank.rhbits": entry("Bits of the rank's header.", 32),
    "rank.layout": entry("Coordinates and payloads lie apart (`contiguous`) or in turn (`interleaved`)."),
    "architecture": entry("Name -> one root level with components and levels below it."),
    "level.name": entry("Name of the level; `PE[0..31]` stands for 32 instances.", "PE[0..31]"),
    "level.num": entry("Instances, where the name does not say it.", 32),
    "level.attributes": entry("Of the root: `clock_frequency` in hertz.", {"clock_frequency": 1000000000}),
    "level.local": entry("The components of this level."),
    "level.subtree": entry("The levels below it."),
    "component.name": entry("Name of the component; bindings refer to it.", "FPMul"),
    "component.class": entry("What it is."),
    "component.attributes": entry("Numbers and words that its class knows; others are kept."),
    "bindings": entry("Einsum -> what it puts on which component of an architecture."),
    "binding": entry("The older name of `bindings`."),
    "bindings.config": entry("The architecture that this Einsum runs on.", "Accelerator"),
    "bindings.prefix": entry("Where results are written; kept, not used."),
    "bindings.component": entry("The component.", "FPMul"),
    "bindings.name": entry("The component (older files).", "FPMul"),
    "bindings.bindings": entry("What is put on the component.", [{"op": "mul"}]),
    "binding.einsum": entry("The Einsum (older files).", "Z"),
    "binding.swap_depth": entry("Of a merger, in older files; kept, not used."),
    "binding.ranks": entry("Of older files; kept, not used."),
    "binding.init_ranks": entry("The older name of `init-ranks`."),
    "binding.final_ranks": entry("The older name of `final-ranks`."),
    "binding.tensor": entry("The tensor.", "A"),
    "binding.rank": entry("The rank whose elements are bound, or `root`.", "K"),
    "binding.type": entry("What of the rank's elements: coordinates, payloads, or both."),
    "binding.format": entry("A configuration of the tensor's format.", "default"),
    "binding.evict-on": entry("Of a Buffet: the loop rank after which a tile is dropped, or `root`.", "root"),
    "binding.style": entry("Of a Buffet: `lazy` fetches elements when used, `eager` whole fibers."),
    "binding.op": entry("What the compute unit executes."),
    "binding.leader": entry("Of a leader-follower intersector: the tensor that leads.", "A"),
    "binding.init-ranks": entry("Of a merger: ranks before it.", ["M", "K", "N"]),
    "binding.final-ranks": entry("Of a merger: ranks after it.", ["M", "N", "K"]),
}
_ATTRIBUTES = {
    "bandwidth": entry("Bits per second.", 1099511627776),
    "datawidth": entry("Bits of one transfer.", 64),
    "width": entry("Bits of one line.", 64),
    "depth": entry("Number of lines, or `inf`.", 393216, "inf"),
    "clock_frequency": entry("Hertz.", 1000000000),
    "read_energy": entry("Joules per bit read.", 1e-12),
    "write_energy": entry("Joules per bit written.", 1e-12),
    "energy": entry("Joules per operation that the unit counts.", 1e-12),
    "inputs": entry("Fibers that the merger takes at once.", 64),
    "outputs": entry("Elements it gives at once.", 1),
    "comparator_radix": entry("Elements compared at once.", 64),
    "radix": entry("Elements compared at once.", 64),
    "next_latency": entry("Cycles from one element to the next.", 1),
    "num_ranks": entry("Ranks that it steps through.", 2),
    "type": entry("What the unit is: mul or add; two-finger, leader-follower or skip-ahead."),
    "op": entry("The older name of a compute unit's type."),
    "order": entry("Order in which fibers leave the merger: fifo or opt."),
    "reduce": entry("Whether the merger adds equal coordinates."),
}


def teaal_parts() -> tuple[Json, dict[str, Json]]:
    """Properties of the sections, and definitions."""
    sections = {
        "einsum": _closed("einsum", {
            "declaration": _table(_NAMES),
            "expressions": {"type": ["array", "string"], "items": {"type": "string"}},
            "operations": _table(_table(_TEXT)),
            "rank_sizes": _table(_SIZE), "bits_per_value": _table(_SIZE),
            "init": _table({"type": ["number", "string"]}),
        }, einsum_section.KEYS, ("declaration", "expressions")),
        "mapping": _closed("mapping", {
            "rank-order": _table(_NAMES),
            "partitioning": _table(_table(_NAMES)),
            "loop-order": _table(_NAMES), "spacetime": _table(_spacetime()),
        }, mapping_section.KEYS),
        "format": _table(_open({"anyOf": [_ref("TeaalFormat"), _ref("TeaalRank")]})),
        "architecture": _open({"anyOf": [
            {"type": "array", "items": _ref("TeaalLevel"), "minItems": 1, "maxItems": 1}, _ref("TeaalLevel"),
        ]}),
    }  # fmt: skip
    listed = {"type": "array", "items": _ref("TeaalOlder")}
    each = {"type": "array", "items": _ref("TeaalBound")}
    for key in ("bindings", "binding"):
        sections[key] = {"anyOf": [_table(each), listed]}
    result = {key: described({**value}, TEXTS[key]) for key, value in sections.items()}
    return result, _definitions()


def _definitions() -> dict[str, Json]:
    memory = {
        k: _word(v) for k, v in (("type", bindings.OPTIONS["type"]), ("style", bindings.OPTIONS["style"]))
    }
    keys = dict.fromkeys(k for listed in bindings.KEYS.values() for k in listed)
    values: dict[str, Json] = {k: {"type": "string"} for k in (*keys, "einsum")}
    values |= {**memory, "op": _word(bindings.OPTIONS["op"]), "init-ranks": _NAMES, "final-ranks": _NAMES}
    older = {"swap_depth": _SIZE, "ranks": _NAMES, "init_ranks": _NAMES, "final_ranks": _NAMES}
    each = _closed("binding", values | older, (*values, *older))
    level = {
        "name": {"type": "string"}, "num": _SIZE, "attributes": _attributes(""),
        "local": _nullable({"type": "array", "items": _ref("TeaalComponent")}),
        "subtree": _nullable({"type": "array", "items": _ref("TeaalLevel")}),
    }  # fmt: skip
    rank_values: dict[str, Json] = {key: {"type": "integer", "minimum": 0} for key in formats.BITS}
    hints = get_type_hints(RankFormat)
    rank_values |= {key: _word(get_args(hints[key])) for key in ("format", "layout")}
    order = {"rank-order": described({**_NAMES}, TEXTS["rank.rank-order"])}
    entries = {"type": "array", "items": _ref("TeaalBinding")}
    return {
        "TeaalLevel": _closed("level", level, hardware.LEVEL, ("name",)),
        "TeaalComponent": _component(),
        "TeaalRank": _closed("rank", rank_values, formats.KEYS),
        "TeaalFormat": {
            "type": "object", "description": "Formats of the ranks.", "properties": order,
            "required": ["rank-order"], "additionalProperties": _ref("TeaalRank"),
        },
        "TeaalBinding": each,
        "TeaalBound": {"anyOf": [
            _closed("bindings", dict.fromkeys(("config", "prefix"), _TEXT), ("config", "prefix")),
            _closed("bindings", {"component": {"type": "string"}, "bindings": entries},
                    ("component", "bindings"), ("component",)),
        ]},
        "TeaalOlder": _closed(
            "bindings", {"name": {"type": "string"}, "bindings": entries}, ("name", "bindings"), ("name",)
        ),
    }  # fmt: skip


def _component() -> Json:
    """A component; its class is read in any case, and says which attributes it has."""
    names = [*hardware.SHOWN, "SRAM", "TwoFinger", "LeaderFollower", "SkipAhead"]
    any_case = "|".join(
        "".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name) for name in hardware.CLASSES
    )
    attributes = _attributes(*(k for k in hardware.NUMBERS if k))
    kind = {"anyOf": [{"enum": names}, {"type": "string", "pattern": f"^({any_case})$"}]}
    values: dict[str, Json] = {
        "name": {"type": "string", "pattern": f"^{NAME}$"},
        "class": kind,
        "attributes": attributes,
    }
    return _closed("component", values, tuple(values), ("name", "class"))


def _attributes(*kinds: str) -> Json:
    """All attributes of these classes; unknown ones are kept, so the table is open."""
    keys = dict.fromkeys(k for kind in kinds or ("",) for k in hardware.NUMBERS[kind])
    result = {k: described({**_SIZE}, _ATTRIBUTES[k]) for k in keys}
    for kind in kinds:
        for key, words in hardware.WORDS.get(kind, {}).items():
            known = [*result.get(key, {}).get("enum", []), *words]
            result[key] = described({"enum": known}, _ATTRIBUTES[key])
    scalar = {"type": ["number", "string", "boolean"]}
    return {"type": ["object", "null"], "properties": result, "additionalProperties": scalar}


def _spacetime() -> Json:
    opened: dict[str, Json] = {
        "space": _STAMPS,
        "time": _STAMPS,
        "opt": {"enum": ["slip", None]},
        "fanout": _table({"type": "string"}),
    }
    return _nullable(_closed("spacetime", opened, tuple(opened)))


def _closed(group: str, values: dict[str, Json], keys: tuple[str, ...], needed: tuple[str, ...] = ()) -> Json:
    """A mapping with exactly these keys. KeyError where a text or a value is missing for one."""
    result = {key: described({**values[key]}, TEXTS[f"{group}.{key}"]) for key in keys}
    required = {"required": list(needed)} if needed else {}
    return {"type": "object", "properties": result, **required, "additionalProperties": False}


def _table(value: Json) -> Json:
    return {"type": ["object", "null"], "additionalProperties": value}


def _open(value: Json) -> Json:
    return {"type": "object", "additionalProperties": value}


def _nullable(value: Json) -> Json:
    return {**value, "type": [value["type"], "null"]}


def _word(words: tuple[str, ...]) -> Json:
    return {"enum": list(words)}


def _ref(name: str) -> Json:
    return {"$ref": f"#/$defs/{name}"}
