"""Every modelling feature with a small spec that uses it: the rows of the support table.

A feature is stated as changes of one small spec, so that what a door refuses is the feature and nothing
else. A feature of mappings is shown by a spec in which its mapping beats every mapping without it, so that a
search with the feature in its space finds something as good; `outside` says why a search does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polymodel as pm
from tests.support.small_specs import (
    CHAIN_TREE,
    PRODUCT_TREE,
    WINDOW_TREE,
    Node,
    Section,
    causal_chain,
    causal_tree,
    chain,
    convolution,
    convolutions,
    fanout,
    halo_tree,
    leaf,
    loop,
    memory,
    product,
    replaced,
    split,
    spread,
    square_tree,
    storage,
    tagged,
    three_in_a_rank,
    three_tree,
    triangle,
    unit,
)


@dataclass(frozen=True)
class Feature:
    """One row. `slopes`: which slope is asked for ("ski", "chain"), or why none can show the feature.

    `outside`: why the search lacks mappings with it, of which the one here is the best in `better_in`.
    `constraints`: of searches, where they have to be told that mappings with it may be looked at.
    """

    name: str
    workload: Section = field(default_factory=product)
    arch: tuple[Node, ...] = ()
    tree: tuple[Node, ...] = PRODUCT_TREE
    options: Section = field(default_factory=dict)
    symbols: Section = field(default_factory=dict)
    slopes: str = "no architecture"
    outside: str = ""
    better_in: str = "energy"
    constraints: Section = field(default_factory=dict)
    densities: Section | None = None

    @property
    def machine(self) -> tuple[Node, ...]:
        """Its architecture: the usual one where it has none of its own."""
        return self.arch or (memory("DRAM", 1e-10), memory("GLB", 1e-12), unit())

    def spec(
        self,
        tree: Sequence[Node] | None = None,
        mapped: bool = True,
        machine: Sequence[Node] = (),
        symbols: Section | None = None,
    ) -> pm.Spec:
        """The spec, with another mapping or none, on another machine or with more symbols."""
        found: Section = {
            "schema_version": 1,
            "arch": {"nodes": list(machine or self.machine), **self.options},
            "workload": self.workload,
        }
        if self.symbols or symbols:
            found["symbols"] = {**self.symbols, **(symbols or {})}
        if mapped:
            found["mapping"] = {"nodes": list(self.tree if tree is None else tree)}
        return pm.load(found)


GLB_BY_64 = [
    {"name": n, "energy": 1e-12, "throughput": 1e9, "bits_per_action": 64} for n in ("read", "write")
]
WITH_PE = (memory("DRAM", 1e-10), memory("GLB", 1e-12), fanout(), unit())
PE_TREE = (
    storage("DRAM", "A", "B", "Z"),
    loop("m", 2),
    storage("GLB", "A", "B", "Z"),
    spread("n", 2),
    leaf("Z"),
)
LINKED = fanout(link={"energy_per_bit_hop": 1e-13, "topology": "mesh", "throughput": 1e8})
BUS = fanout(link={"energy_per_bit_hop": 1e-13, "topology": "bus", "throughput": 1e8})
LINE = fanout(link={"energy_per_bit_hop": 1e-13, "topology": "line", "throughput": 1e8})
RING = fanout(link={"energy_per_bit_hop": 1e-13, "topology": "ring", "throughput": 1e8})
SWITCH = fanout(link={"energy_per_bit_hop": 1e-13, "topology": "switch", "throughput": 1e8})
ALL_TO_ALL = fanout(link={"energy_per_bit_hop": 1e-13, "topology": "all_to_all", "throughput": 1e8})
DELAYED = fanout(link={"hop_latency": 1e-9, "topology": "mesh", "throughput": 1e8})
STAGES = (
    memory("DRAM", 1e-10, throughput=1e12),
    memory("GLB", 1e-12, throughput=1e12),
    unit("MAC0"),
    unit("MAC1"),
)
SMALL_GLB = (memory("DRAM", 1e-10), memory("GLB", 1e-12, 8 * 24), unit())
FAST_WITH_PE = (
    memory("DRAM", 1e-10, throughput=1e12),
    memory("GLB", 1e-12, throughput=1e12),
    fanout(),
    unit(),
)
REFILLS = (
    "storage nodes of the search refill unless `reuse` of their memory has other policies; "
    "what a tile has in common with the one before is fetched again"
)

FEATURES: tuple[Feature, ...] = (
    Feature("a product on two memories", slopes="ski"),
    Feature("a fused chain", chain(), tree=CHAIN_TREE, slopes="chain"),
    Feature("links with costs", arch=(*WITH_PE[:2], LINKED, unit()), tree=PE_TREE),
    Feature("links that are buses", arch=(*WITH_PE[:2], BUS, unit()), tree=PE_TREE),
    Feature("links that are lines", arch=(*WITH_PE[:2], LINE, unit()), tree=PE_TREE),
    Feature("links that are rings", arch=(*WITH_PE[:2], RING, unit()), tree=PE_TREE),
    Feature("links to a switch", arch=(*WITH_PE[:2], SWITCH, unit()), tree=PE_TREE),
    Feature("links from all to all", arch=(*WITH_PE[:2], ALL_TO_ALL, unit()), tree=PE_TREE),
    Feature("links whose hops take time", arch=(*WITH_PE[:2], DELAYED, unit()), tree=PE_TREE),
    Feature(
        "tolls",
        arch=(
            memory("DRAM", 1e-10),
            memory("GLB", 1e-12),
            {
                "type": "Toll",
                "name": "Wire",
                "actions": [{"name": "read", "energy": 1e-13, "throughput": 1e9}],
            },
            unit(),
        ),
    ),
    Feature(
        "branches",
        arch=(
            *WITH_PE[:2],
            *({**n, "branch": "side"} for n in (LINKED, unit("VPU"))),
            fanout(name="PEs"),
            unit(),
        ),
        tree=(*PE_TREE[:3], spread("n", 2, "PEs"), leaf("Z")),
        constraints={"compute": {"Z": "MAC"}},
    ),
    Feature(
        "assume_overlap: false",
        options={"assume_overlap": False},
        arch=(
            memory("DRAM", 1e-10),
            memory("GLB", 1e-12, buffering="single"),
            unit(),
        ),
    ),
    Feature(
        "bits_per_action that values fill",
        arch=(
            memory("DRAM", 1e-10),
            {**memory("GLB", 1e-12), "actions": [{**a, "bits_per_action": 8} for a in GLB_BY_64]},
            unit(),
        ),
    ),
    Feature(
        "bits_per_action that rounds up",
        arch=(
            memory("DRAM", 1e-10),
            {**memory("GLB", 1e-12), "actions": GLB_BY_64},
            unit(),
        ),
    ),
    Feature("separate ports", arch=(memory("DRAM", 1e-10, ports="separate"), memory("GLB", 1e-12), unit())),
    Feature("read_first", arch=(memory("DRAM", 1e-10, read_first=True), memory("GLB", 1e-12), unit())),
    Feature(
        "fill_drain_latency",
        arch=(memory("DRAM", 1e-10, fill_drain_latency=1e-6), memory("GLB", 1e-12), unit()),
    ),
    Feature("leakage", arch=(memory("DRAM", 1e-10, leak_power=1e-3), memory("GLB", 1e-12), unit())),
    Feature(
        "allocation: live",
        arch=(
            memory("DRAM", 1e-10),
            memory("GLB", 1e-12, allocation="live"),
            unit(),
        ),
    ),
    Feature(
        "allocation: live in a fused loop",
        chain(),
        (
            memory("DRAM", 1e-10),
            memory("GLB", 1e-12, 8 * 60, allocation="live"),
            unit(),
        ),
        CHAIN_TREE,
    ),
    Feature(
        "symbols in the hardware",
        symbols={"BITS": 4096},
        arch=(
            memory("DRAM", 1e-10),
            memory("GLB", 1e-12, "BITS"),
            unit(),
        ),
    ),
    Feature("a fanout", arch=WITH_PE, tree=PE_TREE),
    Feature("a fanout that reduces", arch=WITH_PE, tree=replaced(PE_TREE, spread("n", 2), spread("k", 2))),
    Feature(
        "broadcast_partials",
        arch=(*WITH_PE[:2], fanout(broadcast_partials=True), unit()),
        tree=replaced(PE_TREE, spread("n", 2), spread("k", 2)),
    ),
    Feature("multicast: identical", arch=(*WITH_PE[:2], fanout(multicast="identical"), unit()), tree=PE_TREE),
    Feature(
        "uneven spatial tiles",
        product(rank_sizes={"M": 3, "N": 5, "K": 3}),
        FAST_WITH_PE,
        replaced(PE_TREE, spread("n", 2), spread("n", 3)),
        better_in="latency",
        outside="tile sizes divide by default",
        constraints={"spatial_sizes": "all"},
    ),
    Feature(
        "windows in space",
        convolution(),
        FAST_WITH_PE,
        (
            storage("DRAM", "I", "F", "O"),
            storage("GLB", "I", "F", "O"),
            spread("p", 4),
            leaf("O"),
        ),
        better_in="latency",
    ),
    Feature(
        "uneven tiles",
        product(rank_sizes={"M": 7, "N": 4, "K": 4}),
        tree=(
            storage("DRAM", "A", "B", "Z"),
            loop("m", 3),
            storage("GLB", "A", "B", "Z"),
            loop("m", 2),
            leaf("Z"),
        ),
    ),
    Feature(
        "initial tiles",
        convolution(size=7),
        (memory("DRAM", 1e-10), memory("GLB", 1e-12, 8 * 11), unit()),
        (
            storage("DRAM", "I", "F", "O"),
            loop("p", 3, initial_tile_shape=1),
            storage("GLB", "I", "F", "O"),
            leaf("O"),
        ),
        outside="a loop of the search has one tile size, which its first iteration has as well",
        constraints={"moves": ["initial_tiles"]},
    ),
    Feature(
        "reuse: slide",
        convolution(),
        (memory("DRAM", 1e-10), memory("GLB", 1e-12, 8 * 10), unit()),
        tagged(WINDOW_TREE, "GLB", reuse="slide"),
        outside=REFILLS,
        constraints={"memories": {"GLB": {"reuse": ["refill", "slide"]}}},
    ),
    Feature(
        "reuse: keep_previous",
        convolution(),
        (memory("DRAM", 1e-10), memory("GLB", 1e-12, 8 * 10), unit()),
        tagged(WINDOW_TREE, "GLB", reuse="keep_previous"),
        outside=REFILLS,
        constraints={"memories": {"GLB": {"reuse": ["refill", "keep_previous"]}}},
    ),
    Feature("windows", convolution(), tree=WINDOW_TREE, slopes="ski"),
    Feature("strides with holes", convolution(size=4, taps=2, stride=3), tree=WINDOW_TREE, slopes="ski"),
    Feature("padding", convolution(padding=1), tree=WINDOW_TREE, slopes="ski"),
    Feature(
        "triangular spaces",
        triangle(),
        slopes="ski",
    ),
    Feature(
        "a mask spread over instances",
        triangle(),
        WITH_PE,
        replaced(PE_TREE, spread("n", 2), spread("m", 2)),
        slopes="-",
    ),
    Feature("ranks of three rank variables", three_in_a_rank(), tree=three_tree(), slopes="ski"),
    Feature("a causal mask over a fused loop", causal_chain(), tree=causal_tree(), slopes="chain"),
    Feature(
        "fused halos, recomputed",
        convolutions(),
        SMALL_GLB,
        halo_tree("refill"),
        slopes="chain",
        outside="the search fuses loops over what both Einsums index alike",
        constraints={"halos": ["recomputed"]},
    ),
    Feature(
        "fused halos, retained",
        convolutions(),
        SMALL_GLB,
        halo_tree("slide"),
        slopes="chain",
        outside="the search fuses loops over what both Einsums index alike",
        constraints={"halos": ["retained"]},
    ),
    Feature(
        "fused halos, retained, allocation: live",
        convolutions(),
        (memory("DRAM", 1e-10), memory("GLB", 1e-12, 8 * 60, allocation="live"), unit()),
        halo_tree("slide"),
        outside="the search fuses loops over what both Einsums index alike",
        constraints={"halos": ["retained"]},
    ),
    Feature(
        "pipelines",
        chain(),
        STAGES,
        (
            storage("DRAM", "A", "B", "C", "Z"),
            loop("m", 1),
            storage("GLB", "A", "B", "T", "C", "Z"),
            split([leaf("T", "MAC0")], [leaf("Z", "MAC1")], kind="Pipeline"),
        ),
        better_in="latency",
        outside="Einsums of the search run one after the other, so that their latencies add up; "
        "slots of a pipeline take the longest",
        constraints={"moves": ["pipelines"]},
    ),
    Feature(
        "copies",
        {
            "rank_sizes": {"M": 4, "K": 4, "N": 4},
            "bits_per_value": {"All": 8},
            "einsums": [
                {
                    "name": "C",
                    "is_copy_operation": True,
                    "tensor_accesses": [
                        {"name": "X", "projection": ["m", "k"]},
                        {"name": "A", "projection": ["m", "k"], "output": True},
                    ],
                },
                "Z[m, n] = A[m, k] * B[k, n]",
            ],
        },
        tree=(storage("DRAM", "X", "A", "B", "Z"), split([leaf("C")], list(PRODUCT_TREE[1:]))),
        slopes="chain",
    ),
    Feature(
        "one element read twice",
        product(einsums=["Z[m, n] = A[m, n] * A[m, n]"], rank_sizes={"M": 4, "N": 4}),
        tree=square_tree(),
        slopes="ski",
    ),
    Feature(
        "several elements of a tensor read",
        {
            "rank_sizes": {"X": 10},
            "bits_per_value": {"All": 8},
            "einsums": ["Z[X=x] = A[X=x-1] + A[X=x+1]"],
        },
        tree=(storage("DRAM", "A", "Z"), loop("x", 4), storage("GLB", "A", "Z"), leaf("Z")),
        slopes="ski",
    ),
    Feature(
        "products of a tensor with itself (Gram)",
        {
            "rank_sizes": {"M": 4},
            "bits_per_value": {"All": 8},
            "iteration_space_shape": {"m": "0 <= m < 4", "k": "0 <= k < 4"},
            "einsums": ["G[m, k] = A[M=m] * A[M=k]"],
        },
        tree=(storage("DRAM", "A", "G"), loop("m", 2), storage("GLB", "A", "G"), leaf("G")),
        slopes="ski",
    ),
    Feature("adding to what is there", product(einsums=["Z[m, n] += A[m, k] * B[k, n]"]), slopes="ski"),
    Feature(
        "a running sum",
        {
            "rank_sizes": {"P": 4, "M": 4},
            "bits_per_value": {"All": 8},
            "init": {"S": 0},
            "einsums": ["S[P=p+1, m] = S[p, m] + A[p, m]"],
        },
        tree=(storage("DRAM", "S", "A"), loop("p", 1), storage("GLB", "S", "A"), leaf("S")),
        slopes="ski",
    ),
    Feature(
        "a running sum in actions that values do not fill",
        {
            "rank_sizes": {"P": 4, "M": 4},
            "bits_per_value": {"All": 8},
            "init": {"S": 0},
            "einsums": ["S[P=p+1, m] = S[p, m] + A[p, m]"],
        },
        (memory("DRAM", 1e-10), {**memory("GLB", 1e-12), "actions": GLB_BY_64}, unit()),
        tree=(storage("DRAM", "S", "A"), loop("p", 1), storage("GLB", "S", "A"), leaf("S")),
    ),
    Feature(
        "several generations back",
        {
            "rank_sizes": {"P": 6, "M": 4},
            "bits_per_value": {"All": 8},
            "init": {"F": 1},
            "einsums": ["F[P=p+1, m] = F[p, m] + F[P=p-1, m]"],
        },
        tree=(storage("DRAM", "F"), loop("p", 2), storage("GLB", "F"), leaf("F")),
        slopes="ski",
    ),
    Feature(
        "what is before two generations, in a tensor",
        {
            "rank_sizes": {"P": 6, "M": 4},
            "bits_per_value": {"All": 8},
            "init": {"F": "F0"},
            "einsums": ["F[P=p+2, m] = F[p, m] + A[p, m]"],
        },
        tree=(
            storage("DRAM", "F", "A", "F0"),
            loop("p", 2),
            storage("GLB", "F", "A", "F0"),
            leaf("F"),
        ),
        slopes="ski",
    ),
    *(
        Feature(
            f"values beyond the edges of a stencil in time, {what}",
            {
                "rank_sizes": {"T": 4, "X": 6},
                "bits_per_value": {"All": 8},
                "init": {"U": 0},
                "boundary": {"U": edge},
                "einsums": ["U[T=t+1, x] = U[t, X=x-1] + U[t, x] + U[t, X=x+1]"],
            },
            tree=(storage("DRAM", "U", *more), loop("t", 2), storage("GLB", "U", *more), leaf("U")),
            slopes="ski",
        )
        for what, edge, more in (("a number", 1, ()), ("a tensor", "U0", ("U0",)))
    ),
    Feature(
        "what is before, read by a later Einsum alone",
        {
            "rank_sizes": {"P": 4, "M": 4},
            "bits_per_value": {"All": 8},
            "init": {"Y": 0},
            "einsums": ["Y[P=p+1, m] = A[p, m] * B[m]", "Z[p, m] = Y[p, m] + A[p, m]"],
        },
        tree=(
            storage("DRAM", "Y", "A", "B", "Z"),
            loop("p", 2),
            storage("GLB", "Y", "A", "B", "Z"),
            split([leaf("Y")], [leaf("Z")]),
        ),
        slopes="chain",
    ),
    Feature(
        "a cycle of two Einsums",
        {
            "rank_sizes": {"P": 4, "M": 4},
            "bits_per_value": {"All": 8},
            "init": {"X": 1},
            "einsums": ["Y[p, m] = X[p, m] * A[p, m]", "X[P=p+1, m] = Y[p, m] * B[m]"],
        },
        tree=(
            storage("DRAM", "X", "A", "B"),
            loop("m", 2),
            loop("p", 1),
            storage("GLB", "X", "A", "B", "Y"),
            split([leaf("Y")], [leaf("X")]),
        ),
        slopes="chain",
    ),
    Feature(
        "operators as formulas",
        product(
            einsums=[
                {
                    "name": "Z",
                    "tensor_accesses": [
                        {"name": "A", "projection": ["m", "n"]},
                        {"name": "B", "projection": ["n"]},
                        {"name": "Z", "projection": ["m", "n"], "output": True},
                    ],
                    "operations": {"map": "exp(_0 - _1)"},
                }
            ],
            rank_sizes={"M": 4, "N": 4},
        ),
        slopes="ski",
    ),
    Feature(
        "absent points that hold another value than zero",
        product(
            einsums=["Z[m, n] = A[m, n] + B[m, n]"],
            rank_sizes={"M": 4, "N": 4},
            default={"A": "-inf", "Z": "-inf"},
        ),
        slopes="ski",
    ),
    Feature(
        "costs of operators",
        product(einsums=["Z[m, n] = A[m, n] + B[m, n]"], rank_sizes={"M": 4, "N": 4}),
        (
            memory("DRAM", 1e-10),
            memory("GLB", 1e-12),
            {
                "type": "Compute",
                "name": "MAC",
                "actions": [
                    {"name": "compute", "energy": 1e-12, "throughput": 1e9},
                    {"name": "add", "energy": 3e-13, "throughput": 5e8},
                ],
            },
        ),
    ),
    Feature("n_instances", product(n_instances=3), slopes="ski"),
    Feature("persistent tensors", product(persistent_tensors=["B"], n_instances=3), slopes="ski"),
    Feature(
        "a persistent intermediate on chip (a cache for later tokens)",
        chain(persistent_tensors=["T"]),
        tree=(
            storage("DRAM", "A", "B", "C", "Z"),
            storage("GLB", "T"),
            split(
                [loop("k", 2), storage("GLB", "A"), loop("n", 1), storage("GLB", "B"), leaf("T")],
                [loop("j", 1), storage("GLB", "C"), loop("m", 1), storage("GLB", "Z"), leaf("Z")],
            ),
        ),
        slopes="chain",
        outside="persistent intermediates are exchanged in the backing storage: in another memory the whole "
        "tensor, once for each instance of its Einsum, takes room from every Einsum of the run, also from "
        "those before it is made",
    ),
    Feature("two bit widths", product(bits_per_value={"Inputs": 8, "Outputs": 32}), slopes="ski"),
    Feature("densities", product(densities={"A": 0.5}), slopes="ski"),
    Feature(
        "skipping on sparse data",
        product(densities={"A": 0.5}),
        arch=(
            memory("DRAM", 1e-10, sparse={"actions": [{"skip": "B", "on": "A"}]}),
            memory("GLB", 1e-12),
            unit(),
        ),
    ),
    Feature(
        "overbooked sparse tiles",
        product(densities={"A": 0.5}),
        arch=(
            memory("DRAM", 1e-10),
            memory("GLB", 1e-12, sparse={"format": {"A": "COO"}, "fit": {"probability": 0.9}}),
            unit(),
        ),
    ),
)
