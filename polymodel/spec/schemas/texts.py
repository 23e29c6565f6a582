"""Descriptions of every key of `workload:`, `renames:`, `arch:`, `mapping:`, `sweep:` and `explore:`."""

from __future__ import annotations

from dataclasses import dataclass

from polymodel.objectives import SUMS, listed


@dataclass(frozen=True)
class Said:
    """The description of a key. Defaults and allowed words come from the model; examples are given here."""

    text: str
    examples: tuple[object, ...] = ()


def entry(text: str, *examples: object) -> Said:
    """One description."""
    return Said(text, examples)


Texts = dict[str, dict[str, Said]]


_COMPONENT = {
    "name": entry("Name of the component: letters, digits and _.", "GLB"),
    "spatial": entry(
        "Fanout: how many instances of this component and of all below it there are, dimension by dimension.",
        [{"name": "X", "fanout": 16}],
    ),
    "leak_power": entry(
        "Static power of one instance, in watts. Left out, it comes from the energy model, else it is 0.",
        0.02,
    ),
    "area": entry(
        "Area of one instance, in square metres. Left out, it comes from the energy model.", 1.2e-6
    ),
    "energy_model": entry("Where energies, leakage and area come from that are not written here."),
    "source": entry("Where these numbers were published; becomes part of their provenance."),
    "branch": entry(
        "Name of the branch of the hierarchy that it stands on: only what executes on it goes along it; "
        "`a/b` is a branch of the branch `a`.",
        "vector",
    ),
}
_TENSORS = entry(
    "Which tensors are kept here. Left out, the component may keep every tensor.",
    {"keep": "~Intermediates", "may_keep": "All"},
)
_PORTS = entry("`shared`: reads and writes add up in time. `separate`: the slower of both counts.")
_FILL = entry("Seconds added once to each Einsum's latency, to fill and drain the component.", 1e-6)
_CLOCK = entry("Clock in hertz. It only adds a column of cycles to the reports.", 1.05e9)
_SPARSE = entry("Formats, gating and skipping, and intersections, for sparse tensors.")

ARCH: Texts = {
    "Arch": {
        "nodes": entry("Components, outermost first: memories, tolls, containers, and a compute unit last."),
        "assume_overlap": entry("Transfers overlap compute. With false, refills of single buffers add up."),
        "name": entry("Name of the architecture, as reports show it.", "two_level"),
    },
    "Memory": {
        **_COMPONENT,
        "size": entry(
            "Capacity of one instance, in bits or with a unit; an expression, or `inf`.",
            "64 KiB",
            "8 * 64 * 1024",
            "inf",
        ),
        "allocation": entry(
            "What takes room: `tile`, whole tiles; `live`, only elements between first and last use."
        ),
        "tensors": _TENSORS,
        "actions": entry(
            "Energy and throughput of `read` and `write`; on sparse data also `gated_read`, `gated_write`, "
            "`metadata_read` and `metadata_write`.",
            [{"name": "read", "energy": 7.0e-12, "throughput": "8 * 64e9"}],
        ),
        "read_first": entry(
            "Partial sums are also read before the first addition: nothing starts from zero."
        ),
        "ports": _PORTS,
        "buffering": entry(
            "Under `assume_overlap: false`: `double` overlaps refills and takes twice the tile."
        ),
        "fill_drain_latency": _FILL,
        "clock": _CLOCK,
        "sparse": _SPARSE,
        "data_tiles": entry(
            "How sparse operands are cut to fit this memory, and what launching a tile costs."
        ),
    },
    "Toll": {
        **_COMPONENT,
        "tensors": _TENSORS,
        "actions": entry("Energy and throughput of `read` (data going down) and `write` (data going up)."),
        "ports": _PORTS,
        "fill_drain_latency": _FILL,
        "clock": _CLOCK,
    },
    "Container": dict(_COMPONENT),
    "ComputeUnit": {
        **_COMPONENT,
        "actions": entry(
            "Energy in joules per operation and operations per second of `compute`, and of `gated_compute`.",
            [{"name": "compute", "energy": 0.3e-12, "throughput": 1.0e9}],
        ),
        "fill_drain_latency": _FILL,
        "clock": _CLOCK,
        "sparse": _SPARSE,
    },
    "Fanout": {
        "name": entry("Name of the dimension; a `!Spatial` loop names it.", "X"),
        "fanout": entry("How many instances stand side by side along it.", 16),
        "may_reuse": entry(
            "Tensors that may be multicast or reduced across it, a set expression. Left out, all.", "input"
        ),
        "broadcast_partials": entry("A refilled partial sum goes to every instance, not only to one."),
        "multicast": entry(
            "`overlapping`: instances share the common elements of their tiles; `identical`: only a tensor "
            "that the loop does not index is shared, as in Timeloop."
        ),
        "link": entry("Its interconnect: energy per hop, and throughput."),
    },
    "Link": {
        "energy_per_bit_hop": entry("Joules per bit and hop.", 1e-14),
        "topology": entry(
            "How hops are counted: `bus`, `mesh`, `line`, `ring`, `tree`, `switch` or `all_to_all`."
        ),
        "throughput": entry("Bits per second of the whole link; `inf` if it never limits.", "inf"),
        "hop_latency": entry("Seconds per hop: a link takes at least those of the longest route.", 1e-9),
    },
    "Action": {
        "name": entry("Name of the action.", "read", "write", "compute"),
        "energy": entry(
            "Joules per bit (compute: per operation); with `bits_per_action`, joules per action. "
            "Left out, it comes from the energy model.",
            7.0e-12,
        ),
        "throughput": entry("Bits per second of one instance (compute: operations per second).", "8 * 64e9"),
        "bits_per_action": entry("Bits moved by one action; transfers round up to whole actions.", 64),
        "source": entry("Where the energy was published; becomes part of its provenance."),
    },
    "EnergyModel": {
        "name": entry(
            "`constants`, `table`, `published`, `compound`, `hwcomponents`, or an installed entry point.",
            "table",
        ),
        "values": entry("For `constants`: quantity -> number.", {"read": 1e-12, "area": 1e-6}),
        "file": entry("For `table`: a CSV file in the spec's folder.", "energies.csv"),
        "component": entry("Rows to take from the table, or the name in hwcomponents. Left out, our name."),
        "source": entry("Where the numbers were published; becomes part of their provenance."),
        "options": entry(
            "Of `published` and `compound`: see docs/energy_models.md. Handed to an entry point as they are; "
            "to hwcomponents as attributes."
        ),
    },
    "Tensors": {
        "keep": entry("Tensors that must be kept here, a set expression.", "~Intermediates"),
        "may_keep": entry("Tensors that may be kept here besides, a set expression.", "All"),
    },
    "SparseSection": {
        "format": entry("Tensors (a name or set expression) -> format.", {"A": "CSR", "B": ["U", "CP"]}),
        "actions": entry("What is gated or skipped where an operand is zero.", [{"skip": "B", "on": "A"}]),
        "intersect": entry(
            "How coordinates of tensors are matched.", [{"tensors": ["A", "B"], "kind": "two_finger"}]
        ),
        "dense_outputs": entry(
            "Outputs that move between this memory and the next one further in whatever was computed; others "
            "only where an operation was executed.",
            "Outputs",
        ),
        "fit": entry(
            "When a tile in its format fits: `expected` (its expected bits do; of given data those of the "
            "fullest), `worst` (those of the fullest tile that there can be), or `{probability: p}` (it fits "
            "with this probability; what does not is fetched again at each use).",
            "worst",
            {"probability": 0.9},
        ),
    },
    "SparseAction": {
        "gate": entry("Tensors whose accesses still take time, but no energy.", "B"),
        "skip": entry(
            "Tensors whose accesses take neither time nor energy; `compute` in a compute unit.", "B"
        ),
        "on": entry("The tensors that must be zero for it. Left out, all operands.", "A"),
    },
    "Intersection": {
        "tensors": entry("The tensors whose coordinates are matched.", ["A", "B"]),
        "kind": entry("The unit: `two_finger`, `leader_follower` or `skip_ahead`."),
        "leader": entry(
            "Of `leader_follower`: the tensor whose coordinates are looked up in the others.", "A"
        ),
    },
    "DataTiles": {
        "fit": entry("What the capacity counts: `elements`, `words` of compressed tiles, or `stored` bits."),
        "format": entry("Format of a tile, with `fit: stored` only.", "CSR"),
        "capacity": entry("Room of one operand's buffer. Left out, it follows from the memory's size.", 128),
        "word_bits": entry("Bits of one word. Left out, the widest value of the Einsum.", 16),
        "tiler": entry("How operands are cut: `best`, or the name of a tiler.", "best"),
        "objective": entry("What `best` makes least."),
        "run": entry("Which tiles become kernels."),
        "configuration": entry(
            "Cycles that configure the array for one kernel.", {"add": 824, "multiply": 907}
        ),
        "ramp": entry("Cycles in which a kernel starts and ends.", 8),
        "empty": entry("Cycles of a kernel on an empty tile.", 10),
        "ranks": entry("The two ranks that are cut in tensors of more. Left out, the output's first two."),
        "product": entry("How products of two matrices are cut."),
    },
    "Configuration": {
        "add": entry("Cycles to configure a kernel that adds.", 824),
        "multiply": entry("Cycles to configure a kernel that multiplies.", 907),
    },
    "ProductTiles": {
        "strategy": entry("How to cut. Left out, `uniform` where `tile` is given, else `search`."),
        "tile": entry(
            "Sizes along the output's first rank, the shared one and the output's second.", [32, 32, 32]
        ),
        "capacity": entry("Words of each operand's buffer.", 128),
        "order": entry("Loops, outermost first. Left out, the best one."),
        "objective": entry("What the search makes least."),
        "pes": entry("Multiplications a cycle.", 1),
        "bandwidth": entry("Words a cycle.", 1),
        "overbook": entry("Share of tiles that may exceed their buffer, from 0 to 1.", 0.1),
        "time_limit": entry("Seconds of a search.", 30),
    },
}


_RANK = entry("The rank variable that is looped over; of tied ranks, Einsum -> variable.", "m")
_TILE = entry(
    "Values of the rank variable below the loop: a number, a symbol, or Einsum -> size.", 8, "TM", {"E1": 8}
)
_FIRST = entry("Size of the first tile, where it differs from `tile_shape`.", 4)
_PERSISTENT = "stays in backing storage for the whole run"

WORKLOAD: Texts = {
    "Workload": {
        "einsums": entry(
            "Einsums in order of execution: a line of text, named after its output, or a mapping.",
            ["C[m, n] = A[m, k] * B[k, n]"],
        ),
        "rank_sizes": entry("Rank -> its size, a number or an expression.", {"M": 64, "K": 128}),
        "iteration_space_shape": entry("Rank variable -> constraint.", {"m": "0 <= m < 64"}),
        "bits_per_value": entry("Tensors (a set expression) -> bits of one value.", {"All": 8}),
        "n_instances": entry("How many times the whole workload runs.", 1),
        "persistent_tensors": entry(f"Tensors of which a copy {_PERSISTENT}: set expressions.", "weight"),
        "densities": entry("Tensor -> share of nonzeros from 0 to 1, or a density model.", {"A": 0.05}),
        "default": entry("Tensor -> the number that its absent points hold, 0 unless said.", {"S": "-inf"}),
        "operators": entry("Formulas by name, for `operations` of Einsums.", {"cap": {"form": "min(_0, 6)"}}),
        "generational": entry("Ranks along which tensors are carried forward; else inferred.", ["P"]),
        "init": entry("Tensor -> what generations hold that nobody writes, or `identity`.", {"RM": "-inf"}),
        "boundary": entry("Tensor -> what it holds beyond the edges of its other ranks.", {"U": 0}),
        "name": entry("Name of the workload, as reports show it.", "matmul"),
    },
    "Einsum": {
        "name": entry("Name of the Einsum; mappings refer to it.", "Matmul"),
        "tensor_accesses": entry("The tensors that it reads and writes, and how they are indexed."),
        "is_copy_operation": entry("Moves data from one backing storage to another without computing."),
        "n_instances": entry("How many times this Einsum runs, times the workload's own number.", 1),
        "rank_sizes": entry("Rank -> size, in this Einsum alone.", {"M": 64}),
        "iteration_space_shape": entry("Constraints on the rank variables.", ["0 <= p < 32"]),
        "renames": entry("Names for sets of tensors, in this Einsum.", {"input": "T0"}),
        "operations": entry("What the executor computes with actual data."),
        "block": entry("The part of a network that it belongs to; `codesign` adds up blocks.", "attention"),
    },
    "TensorAccess": {
        "name": entry("Name of the tensor.", "A"),
        "projection": entry(
            "Rank variables (ranks are then their upper-cased names), or rank -> affine expression.",
            ["m", "k"],
            {"H": "p + r", "W": "q"},
        ),
        "output": entry("The Einsum writes this tensor."),
        "accumulate": entry("The output has values before, to which results are added (`+=`)."),
        "bits_per_value": entry("Bits of one value here. Left out, the workload's.", 8),
        "persistent": entry(f"A copy of the tensor {_PERSISTENT}."),
        "backing_storage_size_scale": entry("Multiplies the room taken in backing storage.", 1),
        "density": entry("Density of the tensor. Left out, that of the workload's `densities`.", 0.05),
    },
    "Rename": {
        "name": entry("The new name.", "input"),
        "source": entry("The tensors or rank variables that it stands for, a set expression.", "Inputs"),
        "expected_count": entry("How many there must be; checked.", 1),
    },
    "Operations": {
        "map": entry("How operands are combined at a point.", "multiply", "add"),
        "reduce": entry("How the values of one output point are combined.", "add"),
        "populate": entry("How the result enters the output."),
    },
    "OperatorSpec": {
        "form": entry("A formula of `_0`, `_1` and so on; only counted without.", "log(exp(_0) + exp(_1))"),
        "identity": entry("What leaves the other operand as it is; needed to reduce with it.", "-inf"),
        "annihilator": entry("Of several operands: what the result is where one of them is that.", 0),
        "at_zero": entry("Of one operand: what the result is where it is zero.", 0),
        "cost": entry("The operator, or class, that it costs as; else those of `form`.", "exp", "special"),
    },
    "Renames": {"einsums": entry("Renames for each Einsum; the one named `default` holds for all.")},
    "EinsumRenames": {
        "name": entry("The Einsum, or `default` for all of them.", "default"),
        "tensor_accesses": entry("New name -> tensors, a set expression.", {"output": "Outputs"}),
        "rank_variables": entry("New name -> rank variables, a set expression."),
    },
}

MAPPING: Texts = {
    "MappingSpec": {
        "nodes": entry(
            "The LoopTree from the outside in: storage, loops, at most one split, and a compute leaf."
        ),
        "name": entry("Name of the mapping, as reports show it.", "fused"),
        "sparse": entry(
            "Memory or compute unit -> its section `sparse:` under this mapping, in the place of the one in "
            "the architecture: what an exploration chose.",
            {"GLB": {"format": {"A": "CSR"}, "fit": "worst"}},
        ),
    },
    "Storage": {
        "component": entry("The memory (or toll) that holds the tiles.", "GLB"),
        "tensors": entry("The tensors whose tiles are held from here down.", ["A", "B"]),
        "reuse": entry(
            "`refill` fills each tile anew, `slide` fetches only what is new in a window, `keep_previous` "
            "keeps whatever the next step needs."
        ),
    },
    "Temporal": {"rank_variable": _RANK, "tile_shape": _TILE, "initial_tile_shape": _FIRST},
    "Spatial": {
        "rank_variable": _RANK,
        "tile_shape": _TILE,
        "initial_tile_shape": _FIRST,
        "component": entry("The component whose fanout runs the iterations side by side.", "PE"),
        "name": entry("The fanout dimension of that component.", "X"),
    },
    "Compute": {
        "einsum": entry("The Einsum that is executed.", "Matmul"),
        "component": entry("The compute unit that executes it.", "MAC"),
    },
    "Nested": {"nodes": entry("Nodes one below the other.")},
    "Sequential": {"nodes": entry("Branches that run one after the other, each a `!Nested`.")},
    "Pipeline": {
        "nodes": entry("Branches that run overlapped, each on another iteration of the loop above.")
    },
}

SEARCH: Texts = {
    "SweepSection": {
        "symbols": entry(
            "Symbol -> its values: a list, or `divisors(m)`, `all_sizes(m)`, `powers(2, m)`, `range(1, 65)`, "
            "or an expression over others.",
            {"TM": "divisors(m)", "TN": [1, 2, 4]},
        ),
        "where": entry("What every point must satisfy.", ["TM0 <= TM1"]),
        "objectives": entry(
            f"What is minimised, of utilisation what is maximised: {listed()}, or {SUMS}; X is a memory or "
            "toll, and `sparse_` before the others than area and utilisation means sparse data.",
            ["energy", "accesses:DRAM"],
        ),
        "keep": entry("Which points are kept: the Pareto `front`, `all`, or the `top` ones."),
        "top": entry("With `keep: top`: how many, by the first objective.", 10),
    },
    "CodesignSection": {
        "hardware": entry(
            "Symbol of the architecture -> its values: a list, or `powers(2, 64)`, `range(1, 9)`, or an "
            "expression over others.",
            {"KIB": [8, 16, 32], "F": "powers(2, 16)"},
        ),
        "where": entry("What every machine must satisfy.", ["KIB >= F"]),
        "networks": entry(
            "Name -> a workload (files beside this one, or library names), or a table of layers: workload -> "
            "how often it is executed. All run on the same machine.",
            {"resnet": "resnet_18.yaml", "attention": {"attention": 12, "head.yaml": 1}},
        ),
        "weights": entry(
            "Network -> how much its figures count in those of all; 1 by default.", {"resnet": 10}
        ),
        "objectives": entry(
            "What is minimised: energy, latency, edp, area, working_set:X, or weighted sums of them; of all "
            "networks together, of one (`latency of resnet`) or of each by itself (`latency of each`).",
            ["energy", "area"],
        ),
        "limits": entry(
            "Figures that machines with their mappings keep, of all networks together, of one or of each: "
            "texts, or a table of figures and numbers.",
            {"area": "4 mm^2", "latency of resnet": "2 ms", "latency of each": "5 ms"},
        ),
        "layer_by_layer": entry("Each Einsum is a layer of its own: nothing is fused."),
        "eps": entry("Share by which a point left out may be better than one kept.", 0.01),
        "time_limit": entry("Seconds, shared out over the searches.", 60),
    },
    "ExploreSection": {
        "objectives": entry(
            f"What is minimised, of utilisation what is maximised: {listed()}, or {SUMS}; X is a memory or "
            "toll, `working_set` alone is that of the outermost bounded memory; on sparse data "
            "`sparse_energy`, `sparse_latency`, `sparse_edp`.",
            ["energy", "accesses:DRAM"],
        ),
        "limits": entry(
            "Figures that mappings keep: texts, or a table of figures and numbers.",
            {"latency": "2 ms", "accesses:DRAM": 1e9},
        ),
        "eps": entry("Share by which a point left out may be better than one kept.", 0.01),
        "time_limit": entry("Seconds, after which the best found so far is the answer.", 60),
        "max_fused_loops": entry("Most fused loops above a split.", 2),
        "max_fused_loops_per_rank_variable": entry("Most fused loops over one rank variable.", 1),
        "sizes": entry("Tile sizes looked at: `divisors` of the rank sizes, or `all`."),
        "spatial_sizes": entry(
            "Tile sizes over fanouts: `divisors` of the tile around them, or `all`, so that the last "
            "instance may have less than the others."
        ),
        "halos": entry(
            "Chains of windows are fused besides: what their tiles share is `retained`, or `recomputed`.",
            ["retained", "recomputed"],
        ),
        "moves": entry(
            "Mappings are changed in addition: splits run as `pipelines`, loops have `initial_tiles`.",
            ["pipelines"],
        ),
        "force_memory_order": entry("Storage nodes follow the order of the memories in the architecture."),
        "loop_order": entry("Einsum -> rank variables of its fused loops, outermost first.", {"E1": ["m"]}),
        "min_utilisation": entry(
            "Component -> dimension -> least share of its fanout that is used; `max`: as high as it can be.",
            {"PE": {"X": 0.5}},
        ),
        "compute": entry("Einsum -> the compute unit that executes it.", {"E1": "MAC"}),
        "exchange": entry("Memories in which intermediates may be handed on.", ["GLB"]),
        "fuse": entry("Intermediates that must be fused, a set expression.", "T1"),
        "unfused": entry("Intermediates that must not be fused, a set expression.", "T2"),
        "memories": entry("Memory -> what it keeps and bypasses, and its loops.", {"GLB": {"keep": "T1"}}),
        "fanouts": entry(
            "Component -> dimension -> how it is used.",
            {"PE": {"X": {"variables": ["m"], "must_reuse": "W"}}},
        ),
        "sparse_choices": entry(
            "Memory or compute unit -> formats, actions and rules that are chosen from, on sparse data.",
            {"GLB": {"format": {"A": ["CSR", "COO", "dense"]}}},
        ),
    },
    "SparseChoices": {
        "format": entry("Tensor -> formats; `dense` is none.", {"A": ["CSR", ["U", "B"], "dense"]}),
        "actions": entry(
            "Actions besides those of the architecture.",
            [{"of": "B", "on": "A", "kinds": ["skip", "gate", "none"]}],
        ),
        "fit": entry("Rules on which tiles fit, as of `fit:`.", ["expected", {"probability": 0.9}]),
    },
    "SparseActionChoice": {
        "of": entry("Tensors whose accesses are skipped or gated; `compute` of a compute unit.", "B"),
        "on": entry("Tensors whose zeros decide.", "A"),
        "kinds": entry("What to choose from.", ["skip", "gate", "none"]),
    },
    "MemoryRule": {
        "keep": entry("Tensors that this memory must keep, a set expression.", "T1"),
        "may_keep": entry("Tensors that it may keep besides, a set expression.", "All"),
        "bypass": entry("Tensors that it may not keep, a set expression.", "weight"),
        "factors": entry(
            "Rank variable -> how many iterations the temporal loops of this memory over it have together: "
            "a number, or one behind `=`, `<=` or `>=`.",
            {"m": 4, "n": "<= 8"},
        ),
        "order": entry(
            "Rank variables of the temporal loops of this memory, from the outermost in; `...` "
            "stands for any others, and without it others may stand anywhere.",
            ["...", "k"],
        ),
        "no_refetch": entry(
            "Tensors, a set expression, above whose storage here no temporal loop goes over a rank variable "
            "that does not index them.",
            "weight",
        ),
        "reuse": entry(
            "Policies that storage nodes here may have: `refill`, `slide` where the loop right above a "
            "node goes over a variable of a window of its tensor, and `keep_previous`.",
            ["refill", "slide"],
        ),
    },
    "FanoutRule": {
        "variables": entry(
            "Rank variables that may be spread over the dimension; others are not.", ["m", "n"]
        ),
        "factors": entry(
            "Rank variable -> over how many instances it is spread: a number, or one behind `=`, `<=` or "
            "`>=`.",
            {"m": 4, "n": ">= 2"},
        ),
        "must_reuse": entry(
            "Tensors, a set expression, that all instances share: what indexes them is not spread.", "weight"
        ),
    },
}

TEXTS: Texts = {**ARCH, **WORKLOAD, **MAPPING, **SEARCH}
TYPE = "What the node is, in the place of its tag: write `!{tag} {{...}}` or `type: {tag}`."
ROOT = {
    "workload": "A cascade of Einsums in execution order.",
    "renames": "Names for sets of tensors and rank variables, Einsum by Einsum.",
    "arch": "The machine: memories, tolls, containers and compute units, outermost first.",
    "mapping": "The LoopTree: where tiles lie, which loops run over them, and who computes.",
    "sweep": "Which symbols are swept over which values, and what is kept.",
    "explore": "What an exploration minimises, and which mappings it looks at.",
    "codesign": "Which machines a co-design looks at, what it minimises and what it keeps.",
    "symbols": "Symbol -> number, expression over other symbols, or nothing yet (`--set NAME=NUMBER`).",
    "schema_version": "The version of the file format. Left out, it is 1.",
}
