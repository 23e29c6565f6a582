"""Two 3 x 3 convolutions, one after the other, below whatever nodes a test puts above their split."""

from __future__ import annotations

PAIR = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 0}, {name: write, energy: 0}]}
  - !Memory {name: GLB, actions: [{name: read, energy: 0}, {name: write, energy: 0}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 0, throughput: 1}]}
workload:
  bits_per_value: {All: 8}
  iteration_space_shape:
    {p1: 0 <= p1 < SIDE1, q1: 0 <= q1 < SIDE1, r1: 0 <= r1 < 3, s1: 0 <= s1 < 3,
     p2: 0 <= p2 < SIDE2, q2: 0 <= q2 < SIDE2, r2: 0 <= r2 < 3, s2: 0 <= s2 < 3}
  einsums:
  - name: Layer1
    tensor_accesses:
    - {name: F1, projection: {H: p1 + r1, W: q1 + s1}}
    - {name: W1, projection: {R: r1, S: s1}}
    - {name: F2, projection: {Y: p1, X: q1}, output: true}
  - name: Layer2
    tensor_accesses:
    - {name: F2, projection: {Y: p2 + r2, X: q2 + s2}}
    - {name: W2, projection: {R: r2, S: s2}}
    - {name: F3, projection: {P: p2, Q: q2}, output: true}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [F1, W1, W2, F3]}
NODES
  - !Sequential
    nodes:
    - !Compute {einsum: Layer1, component: MAC}
    - !Compute {einsum: Layer2, component: MAC}
"""
HOLD = "  - !Storage {component: GLB, tensors: [F2], reuse: POLICY}\n"
ROWS = "  - !Temporal {rank_variable: p2, tile_shape: 4}\n"
COLUMNS = "  - !Temporal {rank_variable: q2, tile_shape: 4}\n"


def pair_text(nodes: str, *, side: int = 8, made: int = 0) -> str:
    """The spec with `nodes` above the split; F3 is `side` x `side`, F2 2 more each way, or `made`."""
    text = PAIR.replace("SIDE1", str(made or side + 2)).replace("SIDE2", str(side))
    return text.replace("NODES\n", nodes)
