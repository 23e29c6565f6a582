"""What every key of `workload:`, `renames:`, `mapping:`, `sweep:` and `explore:` means."""

from __future__ import annotations

from polymodel.objectives import listed
from polymodel.spec.schemas.arch_texts import ARCH
from polymodel.spec.schemas.said import Texts, said

_RANK = said("The rank variable that is looped over; of tied ranks, Einsum -> variable.", "m")
_TILE = said(
    "Values of the rank variable below the loop: a number, a symbol, or Einsum -> size.", 8, "TM", {"E1": 8}
)
_FIRST = said("Size of the first tile, where it differs from `tile_shape`.", 4)
_PERSISTENT = "stays in backing storage for the whole run"

WORKLOAD: Texts = {
    "Workload": {
        "einsums": said(
            "Einsums in order of execution: a line of text, named after its output, or a mapping.",
            ["C[m, n] = A[m, k] * B[k, n]"],
        ),
        "rank_sizes": said("Rank -> its size, a number or an expression.", {"M": 64, "K": 128}),
        "iteration_space_shape": said("Rank variable -> constraint.", {"m": "0 <= m < 64"}),
        "bits_per_value": said("Tensors (a set expression) -> bits of one value.", {"All": 8}),
        "n_instances": said("How many times the whole workload runs.", 1),
        "persistent_tensors": said(f"Tensors of which a copy {_PERSISTENT}: set expressions.", "weight"),
        "densities": said("Tensor -> share of nonzeros from 0 to 1, or a density model.", {"A": 0.05}),
        "name": said("Name of the workload, as reports show it.", "matmul"),
    },
    "Einsum": {
        "name": said("Name of the Einsum; mappings refer to it.", "Matmul"),
        "tensor_accesses": said("The tensors that it reads and writes, and how they are indexed."),
        "is_copy_operation": said("Moves data from one backing storage to another without computing."),
        "n_instances": said("How many times this Einsum runs, times the workload's own number.", 1),
        "rank_sizes": said("Rank -> size, in this Einsum alone.", {"M": 64}),
        "iteration_space_shape": said("Constraints on the rank variables.", ["0 <= p < 32"]),
        "renames": said("Names for sets of tensors, in this Einsum.", {"input": "T0"}),
        "operations": said("What the executor computes with actual data."),
    },
    "TensorAccess": {
        "name": said("Name of the tensor.", "A"),
        "projection": said(
            "Rank variables (ranks are then their upper-cased names), or rank -> affine expression.",
            ["m", "k"],
            {"H": "p + r", "W": "q"},
        ),
        "output": said("The Einsum writes this tensor."),
        "bits_per_value": said("Bits of one value here. Left out, the workload's.", 8),
        "persistent": said(f"A copy of the tensor {_PERSISTENT}."),
        "backing_storage_size_scale": said("Multiplies the room taken in backing storage.", 1),
        "density": said("Density of the tensor. Left out, that of the workload's `densities`.", 0.05),
    },
    "Rename": {
        "name": said("The new name.", "input"),
        "source": said("The tensors or rank variables that it stands for, a set expression.", "Inputs"),
        "expected_count": said("How many there must be; checked.", 1),
    },
    "Operations": {
        "map": said("How operands are combined at a point.", "multiply", "add"),
        "reduce": said("How the values of one output point are combined.", "add"),
        "populate": said("How the result enters the output."),
    },
    "Renames": {"einsums": said("Renames for each Einsum; the one named `default` holds for all.")},
    "EinsumRenames": {
        "name": said("The Einsum, or `default` for all of them.", "default"),
        "tensor_accesses": said("New name -> tensors, a set expression.", {"output": "Outputs"}),
        "rank_variables": said("New name -> rank variables, a set expression."),
    },
}

MAPPING: Texts = {
    "MappingSpec": {
        "nodes": said(
            "The LoopTree from the outside in: storage, loops, at most one split, and a compute leaf."
        ),
        "name": said("Name of the mapping, as reports show it.", "fused"),
    },
    "Storage": {
        "component": said("The memory (or toll) that holds the tiles.", "GLB"),
        "tensors": said("The tensors whose tiles are held from here down.", ["A", "B"]),
        "reuse": said(
            "`refill` fills each tile anew, `slide` fetches only what is new in a window, `keep_previous` "
            "keeps whatever the next step needs."
        ),
    },
    "Temporal": {"rank_variable": _RANK, "tile_shape": _TILE, "initial_tile_shape": _FIRST},
    "Spatial": {
        "rank_variable": _RANK,
        "tile_shape": _TILE,
        "initial_tile_shape": _FIRST,
        "component": said("The component whose fanout runs the iterations side by side.", "PE"),
        "name": said("The fanout dimension of that component.", "X"),
    },
    "Compute": {
        "einsum": said("The Einsum that is executed.", "Matmul"),
        "component": said("The compute unit that executes it.", "MAC"),
    },
    "Nested": {"nodes": said("Nodes one below the other.")},
    "Sequential": {"nodes": said("Branches that run one after the other, each a `!Nested`.")},
    "Pipeline": {"nodes": said("Branches that run overlapped, each on another iteration of the loop above.")},
}

SEARCH: Texts = {
    "SweepSection": {
        "symbols": said(
            "Symbol -> its values: a list, or `divisors(m)`, `all_sizes(m)`, `powers(2, m)`, `range(1, 65)`, "
            "or an expression over others.",
            {"TM": "divisors(m)", "TN": [1, 2, 4]},
        ),
        "where": said("What every point must satisfy.", ["TM0 <= TM1"]),
        "objectives": said(
            f"What is minimised, of utilisation what is maximised: {listed()}; X is a memory or toll, and "
            "`sparse_` before the others than area and utilisation means sparse data.",
            ["energy", "accesses:DRAM"],
        ),
        "keep": said("Which points are kept: the Pareto `front`, `all`, or the `top` ones."),
        "top": said("With `keep: top`: how many, by the first objective.", 10),
    },
    "ExploreSection": {
        "objectives": said(
            "What is minimised: `energy`, `latency`, `energy_delay`, `buffer`, `buffer:GLB`; on sparse data "
            "`sparse_energy`, `sparse_latency`, `sparse_energy_delay`.",
            ["energy", "latency"],
        ),
        "eps": said("Share by which a point left out may be better than one kept.", 0.01),
        "time_limit": said("Seconds, after which the best found so far is the answer.", 60),
        "max_fused_loops": said("Most fused loops above a split.", 2),
        "max_fused_loops_per_rank_variable": said("Most fused loops over one rank variable.", 1),
        "sizes": said("Tile sizes looked at: `divisors` of the rank sizes, or `all`."),
        "force_memory_order": said("Storage nodes follow the order of the memories in the architecture."),
        "loop_order": said("Einsum -> rank variables of its fused loops, outermost first.", {"E1": ["m"]}),
        "min_utilisation": said(
            "Component -> dimension -> least share of its fanout that is used.", {"PE": {"X": 0.5}}
        ),
        "compute": said("Einsum -> the compute unit that executes it.", {"E1": "MAC"}),
        "exchange": said("Memories in which intermediates may be handed on.", ["GLB"]),
        "fuse": said("Intermediates that must be fused, a set expression.", "T1"),
        "unfused": said("Intermediates that must not be fused, a set expression.", "T2"),
        "memories": said("Memory -> what it keeps and bypasses.", {"GLB": {"keep": "T1"}}),
    },
    "MemoryRule": {
        "keep": said("Tensors that this memory must keep, a set expression.", "T1"),
        "may_keep": said("Tensors that it may keep besides, a set expression.", "All"),
        "bypass": said("Tensors that it may not keep, a set expression.", "weight"),
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
    "symbols": "Symbol -> number, expression over other symbols, or nothing yet (`--set NAME=NUMBER`).",
    "schema_version": "The version of the file format. Left out, it is 1.",
}
