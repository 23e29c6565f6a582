"""What every key of `arch:` means."""

from __future__ import annotations

from polymodel.spec.schemas.said import Texts, said

_COMPONENT = {
    "name": said("Name of the component: letters, digits and _.", "GLB"),
    "spatial": said(
        "Fanout: how many instances of this component and of all below it there are, dimension by dimension.",
        [{"name": "X", "fanout": 16}],
    ),
    "leak_power": said(
        "Static power of one instance, in watts. Left out, it comes from the energy model, else it is 0.",
        0.02,
    ),
    "area": said("Area of one instance, in square metres. Left out, it comes from the energy model.", 1.2e-6),
    "energy_model": said("Where energies, leakage and area come from that are not written here."),
    "source": said("Where these numbers were published; becomes part of their provenance."),
}
_TENSORS = said(
    "Which tensors are kept here. Left out, the component may keep every tensor.",
    {"keep": "~Intermediates", "may_keep": "All"},
)
_PORTS = said("`shared`: reads and writes add up in time. `separate`: the slower of both counts.")
_FILL = said("Seconds added once to each Einsum's latency, to fill and drain the component.", 1e-6)
_CLOCK = said("Clock in hertz. It only adds a column of cycles to the reports.", 1.05e9)
_SPARSE = said("Formats, gating and skipping, and intersections, for sparse tensors.")

ARCH: Texts = {
    "Arch": {
        "nodes": said("Components, outermost first: memories, tolls, containers, and a compute unit last."),
        "assume_overlap": said("Transfers overlap compute. With false, refills of single buffers add up."),
        "name": said("Name of the architecture, as reports show it.", "two_level"),
    },
    "Memory": {
        **_COMPONENT,
        "size": said("Capacity of one instance, in bits; an expression, or `inf`.", "8 * 64 * 1024", "inf"),
        "allocation": said(
            "What takes room: `tile`, whole tiles; `live`, only elements between first and last use."
        ),
        "tensors": _TENSORS,
        "actions": said(
            "Energy and throughput of `read` and `write`; on sparse data also `gated_read`, `gated_write`, "
            "`metadata_read` and `metadata_write`.",
            [{"name": "read", "energy": 7.0e-12, "throughput": "8 * 64e9"}],
        ),
        "read_first": said("Partial sums are also read before the first addition: nothing starts from zero."),
        "ports": _PORTS,
        "buffering": said(
            "Under `assume_overlap: false`: `double` overlaps refills and takes twice the tile."
        ),
        "fill_drain_latency": _FILL,
        "clock": _CLOCK,
        "sparse": _SPARSE,
        "data_tiles": said(
            "How sparse operands are cut to fit this memory, and what launching a tile costs."
        ),
    },
    "Toll": {
        **_COMPONENT,
        "tensors": _TENSORS,
        "actions": said("Energy and throughput of `read` (data going down) and `write` (data going up)."),
        "ports": _PORTS,
        "fill_drain_latency": _FILL,
        "clock": _CLOCK,
    },
    "Container": dict(_COMPONENT),
    "ComputeUnit": {
        **_COMPONENT,
        "actions": said(
            "Energy in joules per operation and operations per second of `compute`, and of `gated_compute`.",
            [{"name": "compute", "energy": 0.3e-12, "throughput": 1.0e9}],
        ),
        "fill_drain_latency": _FILL,
        "clock": _CLOCK,
        "sparse": _SPARSE,
    },
    "Fanout": {
        "name": said("Name of the dimension; a `!Spatial` loop names it.", "X"),
        "fanout": said("How many instances stand side by side along it.", 16),
        "may_reuse": said(
            "Tensors that may be multicast or reduced across it, a set expression. Left out, all.", "input"
        ),
        "broadcast_partials": said("A refilled partial sum goes to every instance, not only to one."),
        "multicast": said(
            "`overlapping`: instances share the common elements of their tiles; `identical`: only a tensor "
            "that the loop does not index is shared, as in Timeloop."
        ),
        "link": said("Its interconnect: energy per hop, and throughput."),
    },
    "Link": {
        "energy_per_bit_hop": said("Joules per bit and hop.", 1e-14),
        "topology": said("How hops are counted: `bus`, `mesh` or `tree`."),
        "throughput": said("Bits per second of the whole link; `inf` if it never limits.", "inf"),
    },
    "Action": {
        "name": said("Name of the action.", "read", "write", "compute"),
        "energy": said(
            "Joules per bit (compute: per operation); with `bits_per_action`, joules per action. "
            "Left out, it comes from the energy model.",
            7.0e-12,
        ),
        "throughput": said("Bits per second of one instance (compute: operations per second).", "8 * 64e9"),
        "bits_per_action": said("Bits moved by one action; transfers round up to whole actions.", 64),
        "source": said("Where the energy was published; becomes part of its provenance."),
    },
    "EnergyModel": {
        "name": said(
            "`constants`, `table`, `hwcomponents`, or the name of an installed entry point.", "table"
        ),
        "values": said("For `constants`: quantity -> number.", {"read": 1e-12, "area": 1e-6}),
        "file": said("For `table`: a CSV file in the spec's folder.", "energies.csv"),
        "component": said("Rows to take from the table, or the name in hwcomponents. Left out, our name."),
        "source": said("Where the numbers were published; becomes part of their provenance."),
        "options": said("Handed to an entry point as they are; to hwcomponents as attributes."),
    },
    "Tensors": {
        "keep": said("Tensors that must be kept here, a set expression.", "~Intermediates"),
        "may_keep": said("Tensors that may be kept here besides, a set expression.", "All"),
    },
    "SparseSection": {
        "format": said("Tensors (a name or set expression) -> format.", {"A": "CSR", "B": ["U", "CP"]}),
        "actions": said("What is gated or skipped where an operand is zero.", [{"skip": "B", "on": "A"}]),
        "intersect": said(
            "How coordinates of tensors are matched.", [{"tensors": ["A", "B"], "kind": "two_finger"}]
        ),
        "dense_outputs": said(
            "Outputs that move between this memory and the next one further in whatever was computed; others "
            "only where an operation was executed.",
            "Outputs",
        ),
    },
    "SparseAction": {
        "gate": said("Tensors whose accesses still take time, but no energy.", "B"),
        "skip": said(
            "Tensors whose accesses take neither time nor energy; `compute` in a compute unit.", "B"
        ),
        "on": said("The tensors that must be zero for it. Left out, all operands.", "A"),
    },
    "Intersection": {
        "tensors": said("The tensors whose coordinates are matched.", ["A", "B"]),
        "kind": said("The unit: `two_finger`, `leader_follower` or `skip_ahead`."),
        "leader": said(
            "Of `leader_follower`: the tensor whose coordinates are looked up in the others.", "A"
        ),
    },
    "DataTiles": {
        "fit": said("What the capacity counts: `elements`, `words` of compressed tiles, or `stored` bits."),
        "format": said("Format of a tile, with `fit: stored` only.", "CSR"),
        "capacity": said("Room of one operand's buffer. Left out, it follows from the memory's size.", 128),
        "word_bits": said("Bits of one word. Left out, the widest value of the Einsum.", 16),
        "tiler": said("How operands are cut: `best`, or the name of a tiler.", "best"),
        "objective": said("What `best` makes least."),
        "run": said("Which tiles become kernels."),
        "configuration": said(
            "Cycles that configure the array for one kernel.", {"add": 824, "multiply": 907}
        ),
        "ramp": said("Cycles in which a kernel starts and ends.", 8),
        "empty": said("Cycles of a kernel on an empty tile.", 10),
        "ranks": said("The two ranks that are cut in tensors of more. Left out, the output's first two."),
        "product": said("How products of two matrices are cut."),
    },
    "Configuration": {
        "add": said("Cycles to configure a kernel that adds.", 824),
        "multiply": said("Cycles to configure a kernel that multiplies.", 907),
    },
    "ProductTiles": {
        "strategy": said("How to cut. Left out, `uniform` where `tile` is given, else `search`."),
        "tile": said(
            "Sizes along the output's first rank, the shared one and the output's second.", [32, 32, 32]
        ),
        "capacity": said("Words of each operand's buffer.", 128),
        "order": said("Loops, outermost first. Left out, the best one."),
        "objective": said("What the search makes least."),
        "pes": said("Multiplications a cycle.", 1),
        "bandwidth": said("Words a cycle.", 1),
        "overbook": said("Share of tiles that may exceed their buffer, from 0 to 1.", 0.1),
        "time_limit": said("Seconds of a search.", 30),
    },
}
