"""Specs whose figures are as large as wanted, for tests of whole numbers beyond 53, 62 and 64 bits."""

from __future__ import annotations

POWERS = (40, 53, 62, 63, 64, 70)

_MACHINE = """
schema_version: 1
arch:
  nodes:
  - !Memory
    name: DRAM
    size: inf
    tensors: {{keep: ~Intermediates, may_keep: All}}
    actions:
    - {{name: read, energy: 7.0e-12, throughput: 5e11}}
    - {{name: write, energy: 7.0e-12, throughput: 5e11}}
  - !Memory
    name: GLB
    size: {size}
    tensors: {{keep: All, may_keep: All}}
    actions:
    - {{name: read, energy: 0.5e-12, throughput: 2.0e12}}
    - {{name: write, energy: 0.5e-12, throughput: 2.0e12}}
  - !Container {{name: PE, spatial: [{{name: X, fanout: 4}}]}}
  - !Compute {{name: MAC, actions: [{{name: compute, energy: 0.3e-12, throughput: 1.0e9}}]}}
symbols: {{TM: 4}}
"""

_FUSED = """
workload:
  rank_sizes: {{M: {m}, N0: 6, N1: 8, N2: 5}}
  bits_per_value: {{All: {bits}}}
  einsums:
  - T1[m, n1] = T0[m, n0] * W0[n0, n1]
  - T2[m, n2] = T1[m, n1] * W1[n1, n2]
mapping:
  nodes:
  - !Storage {{component: DRAM, tensors: [T0, W0, W1, T2]}}
  - !Storage {{component: GLB, tensors: [W0, W1]}}
  - !Temporal {{rank_variable: m, tile_shape: TM}}
  - !Storage {{component: GLB, tensors: [T0, T1, T2]}}
  - !Sequential
    nodes:
    - !Nested
      nodes:
      - !Spatial {{rank_variable: n1, tile_shape: 3, component: PE, name: X}}
      - !Compute {{einsum: T1, component: MAC}}
    - !Nested
      nodes:
      - !Spatial {{rank_variable: n2, tile_shape: 2, component: PE, name: X}}
      - !Compute {{einsum: T2, component: MAC}}
"""

_HALO = """
workload:
  rank_sizes: {{P: 14, Q: 12, R: 3}}
  bits_per_value: {{All: {bits}}}
  einsums:
  - T[p] = I[p]
  - name: O
    tensor_accesses:
    - {{name: T, projection: {{P: q + r}}}}
    - {{name: W, projection: [r]}}
    - {{name: O, projection: [q], output: true}}
mapping:
  nodes:
  - !Storage {{component: DRAM, tensors: [I, O, W]}}
  - !Storage {{component: GLB, tensors: [W]}}
  - !Temporal {{rank_variable: q, tile_shape: TM}}
  - !Storage {{component: GLB, tensors: [I, T, O], reuse: keep_previous}}
  - !Sequential
    nodes:
    - !Nested
      nodes: [!Compute {{einsum: T, component: MAC}}]
    - !Nested
      nodes: [!Compute {{einsum: O, component: MAC}}]
"""

_TRIANGLE = """
workload:
  rank_sizes: {{M: {m}, N: {m}}}
  bits_per_value: {{All: {bits}}}
  einsums:
  - name: E
    iteration_space_shape: 0 <= m < {m} and 0 <= n <= m
    tensor_accesses:
    - {{name: A, projection: [m, n]}}
    - {{name: B, projection: [n]}}
    - {{name: Z, projection: [m], output: true}}
mapping:
  nodes:
  - !Storage {{component: DRAM, tensors: [A, B, Z]}}
  - !Temporal {{rank_variable: m, tile_shape: TM}}
  - !Storage {{component: GLB, tensors: [A, B, Z]}}
  - !Compute {{einsum: E, component: MAC}}
"""


def fused(bits: int, m: int = 12) -> str:
    """Two products in a row, fused, with values of so many bits and so many rows."""
    return (_MACHINE + _FUSED).format(size=bits * 10**6 * m, bits=bits, m=m)


def halo(bits: int) -> str:
    """A copy and a convolution of it that keeps what its tiles share."""
    return (_MACHINE + _HALO).format(size=bits * 10**6, bits=bits)


def triangle(bits: int, m: int = 12) -> str:
    """A product of a lower triangle, which only `exact` and `enumerate` count."""
    return (_MACHINE + _TRIANGLE).format(size=bits * m * m * 4, bits=bits, m=m)


SPECS = {"fused": fused, "halo": halo, "triangle": triangle}
