"""Schemas of the sections beside `arch:`: workload and renames, mapping, and requests of searches."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Annotated, Literal, Union

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, Tag

from polymodel.objectives import relation_of, written
from polymodel.spec.arch_schema import Arch, SparseChoices, SparseSection
from polymodel.spec.base import (
    ConstraintText,
    Factor,
    NameText,
    Number,
    PlainNumber,
    Projection,
    SchemaObject,
    SetKey,
    SetText,
    fault,
    node_tag,
    one_of,
)
from polymodel.spec.expressions import KEYWORDS
from polymodel.spec.one_line import as_mapping, in_rank_order, updated_in_place
from polymodel.spec.yaml_text import MAPPING_TAGS


class TensorAccess(SchemaObject):
    """One access of an Einsum to a tensor.

    `projection`: a list of rank variables (ranks are their upper-cased names), or rank -> affine expression.
    `accumulate`: the output has initial values, to which results are added. `bits_per_value` and `density`
    override those of the workload.
    """

    name: NameText
    projection: Projection
    output: bool = False
    accumulate: bool = False
    bits_per_value: Number | None = None
    persistent: bool = False
    backing_storage_size_scale: Number = 1
    density: object = None


class Rename(SchemaObject):
    """A name for a set of tensors or rank variables; `expected_count` is checked."""

    name: NameText
    source: SetText
    expected_count: int | None = None


RenameTable = Annotated[
    Annotated[tuple[Rename, ...], Tag("<list>")] | Annotated[dict[NameText, SetText], Tag("<mapping>")],
    one_of(
        "renames", {"<list>": (list, tuple), "<mapping>": dict}, "{input: T0} or [{name: input, source: T0}]"
    ),
]


class Operations(SchemaObject):
    """The operators of an Einsum: `map`, `reduce` and `populate`."""

    map: str | None = None
    reduce: str | None = None
    populate: str | None = None


class OperatorSpec(SchemaObject):
    """An operator that the workload defines: a formula of `_0`, `_1`, ...; an operator without one is counted
    but cannot be executed."""

    form: str | None = None
    identity: Number | None = None
    annihilator: Number | None = None
    at_zero: Number | None = None
    cost: str = ""


def _shape_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Einsum(SchemaObject):
    """One Einsum. In YAML also as one line of text; it is then named after its output.

    `block`: the part of a network that it belongs to; counts do not depend on it.
    """

    name: NameText
    tensor_accesses: tuple[TensorAccess, ...]
    is_copy_operation: bool = False
    n_instances: Number = 1
    rank_sizes: dict[NameText, Number] = Field(default_factory=dict)
    iteration_space_shape: Annotated[tuple[ConstraintText, ...], BeforeValidator(_shape_list)] = ()
    renames: RenameTable = Field(default_factory=dict)
    operations: Operations = Field(default_factory=Operations.model_construct)
    block: str = ""


EinsumOrText = Annotated[Einsum, BeforeValidator(as_mapping), AfterValidator(updated_in_place)]


def _set_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Workload(SchemaObject):
    """A cascade of Einsums in execution order.

    `rank_sizes`: rank -> size. `iteration_space_shape`: rank variable -> ISL-style constraint.
    `bits_per_value`: set expression -> bits. `densities`: tensor -> share of nonzero points, or a density
    model (docs/sparse/density.md); a tensor without one has no zeros. `generational`: ranks along which
    tensors are carried forward (inferred by default); `init`: tensor -> the value of generations that no
    Einsum writes: a number, `identity`, or an input tensor; `boundary`: the same beyond the edges of its
    other ranks. `default`: tensor -> the value of absent points, 0 by default. `operators`: formulas by name,
    for `operations`.
    """

    einsums: Annotated[tuple[EinsumOrText, ...], BeforeValidator(in_rank_order)]
    rank_sizes: dict[NameText, Number] = Field(default_factory=dict)
    iteration_space_shape: dict[NameText, ConstraintText] = Field(default_factory=dict)
    bits_per_value: dict[SetKey, Number] = Field(default_factory=dict)
    n_instances: Number = 1
    persistent_tensors: Annotated[tuple[SetText, ...], BeforeValidator(_set_list)] = ()
    densities: dict[NameText, object] = Field(default_factory=dict)
    generational: Annotated[tuple[NameText, ...], BeforeValidator(_set_list)] = ()
    init: dict[NameText, Number] = Field(default_factory=dict)
    boundary: dict[NameText, Number] = Field(default_factory=dict)
    default: dict[NameText, Number] = Field(default_factory=dict)
    operators: dict[NameText, OperatorSpec] = Field(default_factory=dict)
    name: str = ""

    @property
    def tensors(self) -> set[str]:
        """Every tensor, by name."""
        return {a.name for e in self.einsums for a in e.tensor_accesses}

    @property
    def blocks(self) -> dict[str, str]:
        """Einsum -> the block that it belongs to, empty for none."""
        return {e.name: e.block for e in self.einsums}

    @property
    def words(self) -> set[str]:
        """Every name in the indices of its accesses, including rank variables."""
        shapes = [a.projection for e in self.einsums for a in e.tensor_accesses]
        return set(re.findall(r"[A-Za-z_]\w*", str(shapes)))

    @property
    def handed_on(self) -> set[str]:
        """Tensors that one Einsum writes and another reads."""
        accesses = [a for e in self.einsums for a in e.tensor_accesses]
        return {a.name for a in accesses if a.output} & {a.name for a in accesses if not a.output}


def without_tensors(text: str, gone: Collection[str]) -> str:
    """A set expression in which removed tensors are the empty set, as tensors of other Einsums are."""
    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: "Nothing" if m[0] in gone else m[0], text)


class EinsumRenames(SchemaObject):
    """Renames for one Einsum; the Einsum named `default` stands for all of them."""

    name: NameText
    tensor_accesses: RenameTable = Field(default_factory=dict)
    rank_variables: RenameTable = Field(default_factory=dict)


class Renames(SchemaObject):
    """The top-level `renames:` section."""

    einsums: tuple[EinsumRenames, ...] = ()


SchemaVersion = Literal[1]


# Schema of `mapping:`: the nodes of a LoopTree as written in YAML.

RankVariable = Annotated[
    Annotated[NameText, Tag("<name>")] | Annotated[dict[NameText, NameText], Tag("<mapping>")],
    one_of("a rank variable", {"<name>": str, "<mapping>": dict}, "m or {EinsumA: p, EinsumB: q}"),
]
_TILE = Annotated[Number, Tag("<number>")]
_TILES = Annotated[dict[NameText, Number], Tag("<mapping>")]
_SHAPES: dict[str, type | tuple[type, ...]] = {"<number>": (int, float, str), "<mapping>": dict}
_EXAMPLE = "8, TM or {EinsumA: 8, EinsumB: 4}"
TileShape = Annotated[_TILE | _TILES, one_of("a tile size", _SHAPES, _EXAMPLE)]
FirstTile = Annotated[
    _TILE | _TILES | Annotated[None, Tag("<none>")],
    one_of("a first tile size", {**_SHAPES, "<none>": type(None)}, _EXAMPLE),
]


def _no_set(value: object) -> object:
    """A node of a mapping lists its tensors by name; set expressions are for architectures."""
    if isinstance(value, str):
        example = f"[{value}]" if value.isidentifier() and value not in KEYWORDS else "[A, B]"
        message = f"{value!r} is not a list: a node of a mapping lists its tensors by name, and takes no sets"
        raise fault(message, f"write {example}", code="wrong-type")
    return value


class Storage(SchemaObject):
    """Tiles of `tensors` held by `component` for the nodes below. `reuse`: see the counting rules."""

    type: Literal["Storage"] = "Storage"
    component: NameText
    tensors: Annotated[tuple[NameText, ...], BeforeValidator(_no_set)]
    reuse: Literal["refill", "slide", "keep_previous"] = "refill"


class Temporal(SchemaObject):
    """A temporal loop. `tile_shape`: number of values of the rank variable below the loop, or a symbol's
    name.

    A dictionary gives each Einsum its own tile size, for tied ranks of different sizes.
    """

    type: Literal["Temporal"] = "Temporal"
    rank_variable: RankVariable
    tile_shape: TileShape
    initial_tile_shape: FirstTile = None


class Spatial(SchemaObject):
    """A spatial loop over the fanout dimension `name` of `component`."""

    type: Literal["Spatial"] = "Spatial"
    rank_variable: RankVariable
    tile_shape: TileShape
    initial_tile_shape: FirstTile = None
    component: NameText
    name: NameText


class Compute(SchemaObject):
    """The leaf: `einsum` executes on `component`."""

    type: Literal["Compute"] = "Compute"
    einsum: NameText
    component: NameText


class Nested(SchemaObject):
    """Nodes nested in each other, outermost first."""

    type: Literal["Nested"] = "Nested"
    nodes: tuple[MappingNode, ...]


class Sequential(SchemaObject):
    """Branches that run one after the other."""

    type: Literal["Sequential"] = "Sequential"
    nodes: tuple[MappingNode, ...]


class Pipeline(SchemaObject):
    """Branches that overlap in time, each on another iteration of the loop above."""

    type: Literal["Pipeline"] = "Pipeline"
    nodes: tuple[MappingNode, ...]


MappingNode = Annotated[
    Union[  # noqa: UP007  # forward references rule out the bar
        Annotated[Storage, Tag("<Storage>")],
        Annotated[Temporal, Tag("<Temporal>")],
        Annotated[Spatial, Tag("<Spatial>")],
        Annotated[Compute, Tag("<Compute>")],
        Annotated["Nested", Tag("<Nested>")],
        Annotated["Sequential", Tag("<Sequential>")],
        Annotated["Pipeline", Tag("<Pipeline>")],
    ],
    node_tag(MAPPING_TAGS, "a mapping node"),
]


class MappingSpec(SchemaObject):
    """A whole mapping. `sparse`: memory or compute unit -> its section `sparse:` under this mapping, in the
    place of the one in the architecture."""

    nodes: tuple[MappingNode, ...] = ()
    name: str = ""
    sparse: dict[NameText, SparseSection] = Field(default_factory=dict)

    def of_part(self, part: Workload, whole: Workload) -> MappingSpec | None:
        """The mapping of some Einsums of a workload: without the branches, tensors and loops of the others.
        None if nothing remains."""
        einsums = {e.name for e in part.einsums}
        nodes = _of_einsums(self.nodes, einsums, whole.tensors - part.tensors, whole.words - part.words)
        return self.model_copy(update={"nodes": nodes}) if _computes(nodes) else None


def _computes(nodes: Sequence[MappingNode]) -> bool:
    return any(isinstance(n, Compute) or _computes(getattr(n, "nodes", ())) for n in nodes)


def _of_einsums(
    nodes: Sequence[MappingNode], einsums: Set[str], tensors: Set[str], variables: Set[str]
) -> tuple[MappingNode, ...]:
    """Nodes of some Einsums; a split with one remaining branch is replaced by the nodes of that branch."""
    result: list[MappingNode] = []
    for node in nodes:
        if isinstance(node, Compute):
            result += [node] if node.einsum in einsums else []
        elif isinstance(node, Storage):
            mine = tuple(t for t in node.tensors if t not in tensors)
            result += [node.model_copy(update={"tensors": mine})] if mine else []
        elif isinstance(node, (Temporal, Spatial)):
            by_einsum = isinstance(node.rank_variable, dict)
            tied = set(node.rank_variable.values()) if isinstance(node.rank_variable, dict) else set()
            gone = tied <= variables if by_einsum else node.rank_variable in variables
            changed = {
                key: {e: v for e, v in value.items() if e in einsums}
                for key in ("rank_variable", "tile_shape", "initial_tile_shape")
                if isinstance(value := getattr(node, key), dict)
            }
            result += [] if gone else [node.model_copy(update=changed)]
        else:
            inner = _of_einsums(node.nodes, einsums, tensors, variables)
            branches = tuple(n for n in inner if isinstance(node, Nested) or _computes([n]))
            if len(branches) == 1 and not isinstance(node, Nested):
                result += getattr(branches[0], "nodes", branches)
            elif branches:
                result.append(node.model_copy(update={"nodes": branches}))
    return tuple(result)


# Schemas of `explore:` (objectives and mapspace constraints), `sweep:` (the grid of a sweep) and `codesign:`
# (the machines of a co-design).


def _listed(value: object) -> object:
    """A single name as a list of one."""
    return (value,) if isinstance(value, str) else value


def _written(value: object) -> object:
    """Objectives as texts: a table of weights is a weighted sum, and a single objective is a list of one."""
    if isinstance(value, (str, Mapping)):
        return (written(value),) if value else value
    if isinstance(value, (list, tuple)):
        return tuple(written(item) if isinstance(item, Mapping) else item for item in value)
    return value


def limit_texts(value: object) -> object:
    """Limits as texts: `{latency: 2 ms}` is `latency <= 2 ms`."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(f"{name} {relation_of(str(name))} {number}" for name, number in value.items())
    return tuple(value) if isinstance(value, list) else value


Listed = BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...])
Texts = Annotated[tuple[str, ...], Listed]
_Weights = dict[str, int | float]
Objectives = Annotated[
    tuple[str, ...],
    BeforeValidator(_written, json_schema_input_type=str | _Weights | tuple[str | _Weights, ...]),
]
FigureLimits = Annotated[
    tuple[str, ...],
    BeforeValidator(limit_texts, json_schema_input_type=str | dict[str, int | float | str] | tuple[str, ...]),
]
Names = Annotated[tuple[NameText, ...], Listed]


Factors = dict[NameText, Factor]
Policy = Literal["refill", "slide", "keep_previous"]
Policies = Annotated[tuple[Policy, ...], Listed]
HaloPolicies = Annotated[tuple[Literal["retained", "recomputed"], ...], Listed]
Moves = Annotated[tuple[Literal["pipelines", "initial_tiles"], ...], Listed]


class MemoryRule(SchemaObject):
    """What one memory must keep, may keep, and must not keep: set expressions that narrow the rules of the
    architecture and never relax them. `factors`: rank variable -> the product of trip counts of the memory's
    temporal loops over it (`4`, `<= 4`, `>= 4`). `order`: rank variables of these loops, outermost first;
    `...` stands for any others. `no_refetch`: tensors that are fetched into it once: no loop above them is
    over a variable that does not index them. `reuse`: policies that its storage nodes may have, including
    `refill`, or `keep_previous` alone."""

    keep: SetText | None = None
    may_keep: SetText | None = None
    bypass: SetText | None = None
    factors: Factors = Field(default_factory=dict)
    order: Texts | None = None
    no_refetch: SetText | None = None
    reuse: Policies = ("refill",)

    def without(self, variables: Collection[str], tensors: Collection[str]) -> MemoryRule:
        """The rule where there are no such rank variables and tensors."""
        return self.model_copy(
            update={
                "factors": {v: n for v, n in self.factors.items() if v not in variables},
                "order": None if self.order is None else tuple(v for v in self.order if v not in variables),
                **_without(self, ("keep", "may_keep", "bypass", "no_refetch"), tensors),
            }
        )


def _without(rule: SchemaObject, names: Sequence[str], tensors: Collection[str]) -> dict[str, str | None]:
    """Fields that are sets of tensors, without some tensors."""
    texts = {name: getattr(rule, name) for name in names}
    return {name: None if t is None else without_tensors(t, tensors) for name, t in texts.items()}


class FanoutRule(SchemaObject):
    """How one fanout dimension is used. `variables`: those that may be mapped to it; `factors`: rank variable
    -> number of instances over which it is spread; `must_reuse`: tensors that all instances share."""

    variables: Names | None = None
    factors: Factors = Field(default_factory=dict)
    must_reuse: SetText | None = None

    def without(self, variables: Collection[str], tensors: Collection[str]) -> FanoutRule:
        """The rule where there are no such rank variables and tensors."""
        return self.model_copy(
            update={
                "variables": self.variables and tuple(v for v in self.variables if v not in variables),
                "factors": {v: n for v, n in self.factors.items() if v not in variables},
                **_without(self, ("must_reuse",), tensors),
            }
        )


class ExploreSection(SchemaObject):
    """`objectives`: energy, latency, edp, area, utilisation, accesses:MEMORY and others, or weighted sums of
    them; on sparse data sparse_energy, sparse_latency, sparse_edp. `limits`: bounds on figures of the
    mappings. `eps`: the relative amount by which an omitted point may be better than the nearest kept one.
    `time_limit`: seconds.

    The other fields restrict the mapspace, as in `Limits`: `loop_order` (Einsum -> rank variables of fused
    loops, outermost first), `min_utilisation` (component -> dimension -> least share of the fanout),
    `compute` (Einsum -> component), `exchange` (memories through which intermediates may be passed), `fuse`
    and `unfused` (sets of intermediates), `memories` (memory -> what it keeps and bypasses, and its loops),
    `fanouts` (component -> dimension -> how it is used). `sparse_choices`: component -> formats, actions and
    criteria to choose from, on sparse data.
    """

    objectives: Objectives = ("energy", "latency")
    limits: FigureLimits = ()
    eps: Number = 0
    time_limit: Number | None = None
    max_fused_loops: Number | None = None
    max_fused_loops_per_rank_variable: Number = 1
    sizes: Literal["divisors", "all"] = "divisors"
    spatial_sizes: Literal["divisors", "all"] = "divisors"
    halos: HaloPolicies = ()
    moves: Moves = ()
    force_memory_order: StrictBool = True
    loop_order: dict[NameText, Names] = Field(default_factory=dict)
    min_utilisation: dict[NameText, dict[NameText, Number]] = Field(default_factory=dict)
    compute: dict[NameText, NameText] = Field(default_factory=dict)
    exchange: Names | None = None
    fuse: SetText | None = None
    unfused: SetText | None = None
    memories: dict[NameText, MemoryRule] = Field(default_factory=dict)
    fanouts: dict[NameText, dict[NameText, FanoutRule]] = Field(default_factory=dict)
    sparse_choices: dict[NameText, SparseChoices] = Field(default_factory=dict)

    def of_part(self, part: Workload, whole: Workload) -> ExploreSection:
        """The section restricted to some Einsums of a workload: entries for the others and for their rank
        variables are dropped, and their tensors are the empty set. In the fields about fusion, tensors that
        the part only writes or only reads are dropped too."""
        einsums = {e.name for e in whole.einsums} - {e.name for e in part.einsums}
        variables, tensors = whole.words - part.words, whole.tensors - part.tensors
        apart = tensors | (whole.handed_on - part.handed_on)
        rules: dict[str, object] = {
            "loop_order": {e: order for e, order in self.loop_order.items() if e not in einsums},
            "compute": {e: unit for e, unit in self.compute.items() if e not in einsums},
            "memories": {name: rule.without(variables, tensors) for name, rule in self.memories.items()},
            "fanouts": {
                name: {dim: rule.without(variables, tensors) for dim, rule in dims.items()}
                for name, dims in self.fanouts.items()
            },
            **_without(self, ("fuse", "unfused"), apart),
        }
        # Fields that are set take precedence over those of another section; no others become set here.
        changed = {name: rule for name, rule in rules.items() if rule != getattr(self, name)}
        return self.model_copy(update=changed)


Choices = dict[
    NameText,
    Annotated[
        Annotated[PlainNumber, Tag("<number>")]
        | Annotated[str, Tag("<text>")]
        | Annotated[tuple[PlainNumber, ...], Tag("<list>")],
        one_of(
            "the values of a symbol", {"<number>": (int, float), "<text>": str, "<list>": (list, tuple)},
            "a number, a list of numbers, or a text such as range(1, 65)",
        ),
    ],
]  # fmt: skip


class SweepSection(SchemaObject):
    """`symbols`: name -> list of numbers, or a text such as `divisors(m)`, `range(1, 65)` or `2*TM`."""

    symbols: Choices = Field(default_factory=dict)
    where: tuple[str, ...] = ()
    objectives: Objectives = ("energy", "latency")
    keep: Literal["front", "all", "top"] = "front"
    top: int | None = None


NetworkText = Annotated[
    Annotated[Texts, Tag("<list>")] | Annotated[dict[str, int], Tag("<mapping>")],
    one_of(
        "a network", {"<list>": (list, tuple, str), "<mapping>": dict},
        "conv2d, [a.yaml, b.yaml], or {conv2d: 3, matmul: 1}",
    ),
]  # fmt: skip


class CodesignSection(SchemaObject):
    """`hardware`: symbol of the architecture -> its values: a list of numbers, or a text such as `powers(2,
    64)`, `range(1, 9)` or `2*F`. `where`: comparisons of symbols that every machine satisfies. `networks`:
    name -> files or library names of a workload, or a table of layers: workload -> how often it is executed;
    all run on the same machine. `weights`: network -> its weight. `objectives`, `limits`, `eps` and
    `time_limit` (seconds): of the joint front; `latency of NAME` is that of one network. `layer_by_layer`:
    each Einsum is a layer of its own."""

    hardware: Choices = Field(default_factory=dict)
    where: tuple[str, ...] = ()
    networks: dict[str, NetworkText] = Field(default_factory=dict)
    weights: dict[str, PlainNumber] = Field(default_factory=dict)
    objectives: Objectives = ("energy", "latency", "area")
    limits: FigureLimits = ()
    layer_by_layer: StrictBool = False
    eps: PlainNumber = 0
    time_limit: PlainNumber | None = None

    @property
    def layers(self) -> dict[str, tuple[tuple[tuple[str, ...], int], ...]]:
        """Of each network its layers: the sources of each workload, and how often it is executed."""
        return {
            name: tuple(((one,), n) for one, n in given.items()) if isinstance(given, dict) else ((given, 1),)
            for name, given in self.networks.items()
        }


def mentions_sparsity(workload: Workload | None, arch: Arch | None) -> bool:
    """True if a workload or an architecture mentions sparsity; only then are the modules for it imported."""
    accesses = [a for e in workload.einsums for a in e.tensor_accesses] if workload else []
    said = workload is not None and (bool(workload.densities) or any(a.density is not None for a in accesses))
    return said or any(getattr(n, "sparse", None) is not None for n in (arch.nodes if arch else ()))
