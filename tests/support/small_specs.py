"""Small workloads, machines and mappings, part by part, of which tests put together specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Node = dict[str, Any]
Section = dict[str, Any]


def memory(name: str, energy: float, size: float | str = "inf", throughput: float = 1e9, **more: Any) -> Node:
    """A memory whose reads and writes cost the same per bit and take the same time."""
    actions = [{"name": n, "energy": energy, "throughput": throughput} for n in ("read", "write")]
    return {"type": "Memory", "name": name, "size": size, "actions": actions, **more}


def unit(name: str = "MAC", **more: Any) -> Node:
    """A compute unit."""
    return {
        "type": "Compute",
        "name": name,
        "actions": [{"name": "compute", "energy": 1e-12, "throughput": 1e9}],
        **more,
    }


def fanout(name: str = "PE", **more: Any) -> Node:
    """A container with one fanout of two."""
    return {"type": "Container", "name": name, "spatial": [{"name": "X", "fanout": 2, **more}]}


def storage(component: str, *tensors: str, **more: Any) -> Node:
    return {"type": "Storage", "component": component, "tensors": list(tensors), **more}


def loop(variable: str | Mapping[str, str], tile: int, **more: Any) -> Node:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile, **more}


def spread(variable: str, tile: int, component: str = "PE", name: str = "X") -> Node:
    return {
        "type": "Spatial",
        "rank_variable": variable,
        "tile_shape": tile,
        "component": component,
        "name": name,
    }


def leaf(einsum: str, component: str = "MAC") -> Node:
    return {"type": "Compute", "einsum": einsum, "component": component}


def split(*branches: Sequence[Node], kind: str = "Sequential") -> Node:
    return {"type": kind, "nodes": [{"type": "Nested", "nodes": list(b)} for b in branches]}


def product(**more: Any) -> Section:
    """Z[m, n] = A[m, k] * B[k, n], 4 x 4 x 4 of 8 bits."""
    return {
        "rank_sizes": {"M": 4, "N": 4, "K": 4},
        "bits_per_value": {"All": 8},
        "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
        **more,
    }


def chain(**more: Any) -> Section:
    """Two products in a chain."""
    return {
        "rank_sizes": {"M": 4, "N": 4, "K": 4, "J": 4},
        "bits_per_value": {"All": 8},
        "einsums": ["T[m, n] = A[m, k] * B[k, n]", "Z[m, j] = T[m, n] * C[n, j]"],
        **more,
    }


def convolution(size: int = 8, taps: int = 3, stride: int = 1, padding: int = 0) -> Section:
    """O[p] = I[a p + r - padding] * F[r]; with `padding` the input is narrower than its windows reach."""
    width = stride * (size - 1) + taps - 2 * padding
    rank = (f"{stride}*p" if stride > 1 else "p") + " + r" + (f" - {padding}" if padding else "")
    return {
        "rank_sizes": {"P": size, "R": taps, "W": width},
        "bits_per_value": {"All": 8},
        "einsums": [
            {
                "name": "O",
                "tensor_accesses": [
                    {"name": "I", "projection": {"W": rank}},
                    {"name": "F", "projection": ["r"]},
                    {"name": "O", "projection": ["p"], "output": True},
                ],
            }
        ],
    }


def convolutions() -> Section:
    """Two convolutions in a chain; the second one reads windows of what the first one makes."""

    def one(name: str, read: str, taps: str, made: str, p: str, r: str, n: int) -> Section:
        return {
            "name": name,
            "tensor_accesses": [
                {"name": read, "projection": {f"W{n}": f"{p} + {r}"}},
                {"name": taps, "projection": [r]},
                {"name": made, "projection": {f"W{n + 1}": p}, "output": True},
            ],
        }

    return {
        "rank_sizes": {"W1": 36, "W2": 34, "W3": 32, "R1": 3, "R2": 3},
        "bits_per_value": {"All": 8},
        "einsums": [one("T", "I", "F", "T", "p1", "r1", 1), one("O", "T", "G", "O", "p2", "r2", 2)],
    }


PRODUCT_TREE = (
    storage("DRAM", "A", "B", "Z"),
    loop("m", 2),
    storage("GLB", "A", "B", "Z"),
    loop("m", 1),
    leaf("Z"),
)
CHAIN_TREE = (
    storage("DRAM", "A", "B", "C", "Z"),
    loop("m", 2),
    storage("GLB", "A", "B", "T", "C", "Z"),
    split([leaf("T")], [leaf("Z")]),
)
WINDOW_TREE = (
    storage("DRAM", "I", "F", "O"),
    storage("GLB", "F"),
    loop("p", 2),
    storage("GLB", "I", "O"),
    leaf("O"),
)


def triangle() -> Section:
    """A product of which no column beyond the row is asked for."""
    return {
        "rank_sizes": {"M": 4, "N": 4, "K": 4},
        "bits_per_value": {"All": 8},
        "einsums": [
            {
                "name": "Z",
                "iteration_space_shape": "n <= m",
                "tensor_accesses": [
                    {"name": "A", "projection": ["m", "k"]},
                    {"name": "B", "projection": ["k", "n"]},
                    {"name": "Z", "projection": ["m", "n"], "output": True},
                ],
            }
        ],
    }


def three_in_a_rank() -> Section:
    """Chunks of positions with a window over them: one rank of the input has three rank variables."""
    return {
        "rank_sizes": {"C": 3, "P": 4, "R": 3},
        "bits_per_value": {"All": 8},
        "einsums": ["O[c, p] = I[X=4*c + p + r] * F[r]"],
    }


def three_tree() -> tuple[Node, ...]:
    return (
        storage("DRAM", "I", "F", "O"),
        storage("GLB", "F"),
        loop("c", 1),
        loop("p", 2),
        storage("GLB", "I", "O"),
        leaf("O"),
    )


def causal_chain() -> Section:
    """Scores and outputs of attention in which no query looks ahead."""

    def one(name: str, *accesses: Section) -> Section:
        return {"name": name, "iteration_space_shape": "n <= m", "tensor_accesses": list(accesses)}

    def access(name: str, ranks: str, **more: Any) -> Section:
        return {"name": name, "projection": list(ranks), **more}

    return {
        "rank_sizes": {"M": 4, "N": 4, "E": 2, "F": 2},
        "bits_per_value": {"All": 8},
        "einsums": [
            one("S", access("Q", "me"), access("K", "ne"), access("S", "mn", output=True)),
            one("O", access("S", "mn"), access("V", "nf"), access("O", "mf", output=True)),
        ],
    }


def causal_tree() -> tuple[Node, ...]:
    """Queries and outputs stay, keys and values go by; of keys what the next queries need as well stays."""
    return (
        storage("DRAM", "Q", "K", "V", "O"),
        loop("m", 2),
        storage("GLB", "Q", "O"),
        loop("n", 2),
        storage("GLB", "K", "V", reuse="keep_previous"),
        storage("GLB", "S"),
        split([leaf("S")], [leaf("O")]),
    )


def halo_tree(reuse: str) -> tuple[Node, ...]:
    """The convolutions fused over tiles of the last output; the intermediate's storage has a policy."""
    return (
        storage("DRAM", "I", "F", "G", "O"),
        storage("GLB", "F", "G"),
        loop("p2", 4),
        storage("GLB", "T", reuse=reuse),
        storage("GLB", "I", "O"),
        split([leaf("T")], [leaf("O")]),
    )


def square_tree() -> tuple[Node, ...]:
    """The product's mapping for an Einsum without B."""
    return (
        storage("DRAM", "A", "Z"),
        loop("m", 2),
        storage("GLB", "A", "Z"),
        loop("m", 1),
        leaf("Z"),
    )


def replaced(tree: Sequence[Node], old: Node, *new: Node) -> tuple[Node, ...]:
    """The tree with one of its outer nodes replaced."""
    assert old in tree
    return tuple(n for node in tree for n in (new if node == old else (node,)))


def tagged(nodes: Sequence[Node], component: str, **more: Any) -> tuple[Node, ...]:
    """The tree with more keys in every storage node of a component."""
    return tuple({**n, **more} if n.get("component") == component else n for n in nodes)
