"""The spec that `polymodel new` writes: small, complete, and commented."""

STARTER = """\
# A polymodel spec: an architecture, a workload and a mapping. Units: bits, joules, seconds.
# Try: polymodel show THIS_FILE, then polymodel evaluate THIS_FILE --set TM=32
schema_version: 1

arch:
  name: two_level
  nodes:                                    # outermost first
  - !Memory
    name: DRAM
    size: inf                               # bits
    tensors: {keep: ~Intermediates, may_keep: All}
    actions:                                # joules per bit, bits per second
    - {name: read, energy: 7.0e-12, throughput: 8 * 64e9}
    - {name: write, energy: 7.0e-12, throughput: 8 * 64e9}
  - !Memory
    name: GLB                               # the global buffer
    size: 8 * 64 * 1024
    tensors: {keep: ~DRAM.tensors, may_keep: All}
    actions:
    - {name: read, energy: 0.5e-12, throughput: 2.0e12}
    - {name: write, energy: 0.5e-12, throughput: 2.0e12}
  - !Container
    name: PE                                # 16 processing elements, in a row named X
    spatial:
    - {name: X, fanout: 16}
  - !Compute
    name: MAC                               # joules per operation, operations per second
    actions: [{name: compute, energy: 0.3e-12, throughput: 1.0e9}]

workload:
  name: two_matmuls
  rank_sizes: {M: 128, N0: 64, N1: 96, N2: 80}
  bits_per_value: {All: 8}
  einsums:                                  # in order of execution
  - T1[m, n1] = T0[m, n0] * W0[n0, n1]      # in this form an Einsum is named after its output
  - T2[m, n2] = T1[m, n1] * W1[n1, n2]

mapping:
  name: fused                               # T1 never leaves the chip
  nodes:                                    # from the outside in
  - !Storage {component: DRAM, tensors: [T0, W0, W1, T2]}
  - !Storage {component: GLB, tensors: [W0, W1]}
  - !Temporal {rank_variable: m, tile_shape: TM}            # the size of the tile below the loop
  - !Storage {component: GLB, tensors: [T0, T1, T2]}
  - !Sequential                             # both Einsums for one tile of m, one after the other
    nodes:
    - !Nested
      nodes:
      - !Spatial {rank_variable: n1, tile_shape: 6, component: PE, name: X}
      - !Temporal {rank_variable: m, tile_shape: 1}
      - !Temporal {rank_variable: n1, tile_shape: 1}
      - !Temporal {rank_variable: n0, tile_shape: 1}
      - !Compute {einsum: T1, component: MAC}
    - !Nested
      nodes:
      - !Spatial {rank_variable: n2, tile_shape: 5, component: PE, name: X}
      - !Temporal {rank_variable: m, tile_shape: 1}
      - !Temporal {rank_variable: n2, tile_shape: 1}
      - !Temporal {rank_variable: n1, tile_shape: 1}
      - !Compute {einsum: T2, component: MAC}

symbols: {TM: 16}                           # change it with --set TM=32
"""
