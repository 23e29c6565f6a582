"""Published energies and areas of components as functions of their parameters: the energy model `published`.

Values between and beyond published points are interpolated linearly on logarithmic axes; the provenance says
so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from polymodel.spec.energy_records import EnergyAnswer, EnergyRequest, fault_of, option_number, unknown_of
from polymodel.spec.faults import suggestion

HOROWITZ = "M. Horowitz, ISSCC 2014, figure 1.1.9, 45 nm at 0.9 V"
_KIB = 8 * 1024
# Bits of a cache -> joules of an access of 64 bits.
_SRAM = {8 * _KIB: 10e-12, 32 * _KIB: 20e-12, 1024 * _KIB: 100e-12}
_DRAM = 1.3e-9  # an access of 64 bits; 2.6 nJ at most
_ACCESS = 64
KECKLER = "S. Keckler et al., IEEE Micro 31(5), 2011, table 1, 40 nm at 0.9 V"
_WIRE = 310e-12 / 256 / 10e-3  # joules per bit and metre: 256 bits over 10 mm, half of which change
_WIRE_VOLTS = 0.9
# Operation -> width in bits -> joules.
_OPERATIONS: dict[str, dict[int, float]] = {
    "int_add": {8: 0.03e-12, 16: 0.05e-12, 32: 0.1e-12},
    "int_multiply": {8: 0.2e-12, 32: 3.1e-12},
    "float_add": {16: 0.4e-12, 32: 0.9e-12},
    "float_multiply": {16: 1.1e-12, 32: 3.7e-12},
}
DALLY = "synthesised for 45 nm: W. Dally, High-Performance Hardware for Machine Learning, NIPS tutorial 2015"
# The same operations -> width in bits -> square metres.
_AREAS: dict[str, dict[int, float]] = {
    "int_add": {8: 36e-12, 16: 67e-12, 32: 137e-12},
    "int_multiply": {8: 282e-12, 32: 3495e-12},
    "float_add": {16: 1360e-12, 32: 4184e-12},
    "float_multiply": {16: 1640e-12, 32: 7700e-12},
}
# Node (nm) -> square metres of the densest cell of six transistors, and where it was published.
_CELLS: dict[int, tuple[float, str]] = {
    90: (1.0e-12, "S. Thompson et al., IEDM 2002"),
    65: (0.57e-12, "P. Bai et al., IEDM 2004"),
    45: (0.346e-12, "K. Mistry et al., IEDM 2007"),
    32: (0.171e-12, "S. Natarajan et al., IEDM 2008"),
    16: (0.07e-12, "S.-Y. Wu et al., IEDM 2013"),
    14: (0.0588e-12, "S. Natarajan et al., IEDM 2014"),
    10: (0.0312e-12, "C. Auth et al., IEDM 2017"),
    7: (0.027e-12, "S.-Y. Wu et al., IEDM 2016"),
}
EYERISS = "Y.-H. Chen, J. Emer and V. Sze, ISCA 2016, table IV"
_WORD = 16  # bits; an access of a register file of 0.5 kB costs what multiplying and adding such words does
STILLMAKER = "A. Stillmaker and B. Baas, Integration 58, 2017"
# Node (nm) -> coefficients of V^2, V and 1: relative energies of an operation. From 45 nm to 32 nm those of
# low-power devices, from 20 nm on those of high-performance multi-gate ones.
_NODES: dict[int, tuple[float, float, float]] = {
    130: (7.171, -6.709, 2.904),
    90: (4.762, -4.781, 2.092),
    65: (3.755, -4.398, 1.975),
    45: (1.103, -0.362, 0.2767),
    32: (0.9559, -0.7823, 0.471),
    20: (0.373, -0.1582, 0.04104),
    16: (0.2958, -0.1241, 0.03024),
    14: (0.2363, -0.09675, 0.02239),
    10: (0.2068, -0.09311, 0.02375),
    7: (0.1776, -0.09097, 0.02447),
}
_AT = (45, 0.9)  # nm and volts of the published points
RIXNER = "as S. Rixner et al., HPCA 2000, have it for many ports"
_OF_MEMORIES: dict[str, tuple[str, ...]] = {
    "sram": ("size", "width", "ports", "array_efficiency"),
    "dram": (),
    "register_file": ("ports",),
    "wire": ("length", "voltage"),
}
OPTIONS = (*dict.fromkeys(o for own in _OF_MEMORIES.values() for o in own), "bits", "accumulate", "node")
_MACS = ("int_mac", "float_mac")


def published(request: EnergyRequest) -> EnergyAnswer:
    """Published points, with straight lines between them on logarithmic axes. TextFault for another component
    or option.

    `sram`: per bit, by `size` (bits; the memory's own, if it is left out) and the `width` of an access (64
    bits); its area is that of its cells, over `array_efficiency` (their share of the macro, 1). `dram`,
    `register_file`: per bit. `ports` of an SRAM or register file multiply its energies, and their square its
    area. `wire`: per bit,
    by `length` (metres) and `voltage`, whose square energies follow. `int_add`, `int_multiply`, `float_add`,
    `float_multiply`: per operation of `bits`. `int_mac`, `float_mac`: a product of `bits`, added at
    `accumulate` bits (32). `node` (metres) and `voltage`: of another technology, by the factors of
    Stillmaker and Baas.
    """
    known = (*_OF_MEMORIES, *_OPERATIONS, *_MACS)
    name, options = request.component, dict(request.options)
    if name not in known:
        raise unknown_of(f"there are no published points of {name}", name, known, "components")
    used = _OF_MEMORIES.get(name, ("bits", "accumulate") if name in _MACS else ("bits",))
    used += ("node", "voltage") if name not in ("dram", "wire") else ()  # no scaling factors for these
    for option in options:
        if option not in used:
            near = suggestion(option, used, "options") if used else "leave it out"
            raise fault_of(f"{name} has no option {option}", near, "unknown-key")
    if name == "wire":
        return _of_wire(request)
    factor, technology = _scaled(options)
    if name in _OF_MEMORIES:
        return _of_memory(request, name, factor, technology)
    bits, sums = (option_number(options, o, d) for o, d in (("bits", 8), ("accumulate", 32)))
    parts = [(name, bits)]
    if name in _MACS:
        kind = name.partition("_")[0]
        parts = [(f"{kind}_multiply", bits), (f"{kind}_add", sums)]
    energy, said = _summed(_OPERATIONS, parts)
    values, origins = {"compute": energy * factor}, {"compute": f"{HOROWITZ}: {said}{technology}"}
    if _node(options) == _AT[0] and "area" in request.quantities:
        values["area"], said = _summed(_AREAS, parts)
        origins["area"] = f"{DALLY}: {said}"
    return EnergyAnswer(values, origins)


def _summed(
    points: Mapping[str, Mapping[int, float]], parts: Sequence[tuple[str, float]]
) -> tuple[float, str]:
    """Return the sum over parts (operation, bits), and a description of its terms."""
    each = [_interpolated(points[operation], width) for operation, width in parts]
    how = max((added for _, added in each), key=len)
    said = " and ".join(f"{o.replace('_', ' ')} of {w:g} bits" for o, w in parts)
    return sum(value for value, _ in each), f"{said}{how}"


def _node(options: Mapping[str, object]) -> float:
    """Return the technology node in nanometres."""
    return round(option_number(options, "node", _AT[0] * 1e-9) * 1e9, 3)


def _scaled(options: Mapping[str, object]) -> tuple[float, str]:
    """The factor on the energies of the published points, and its reason. Raises TextFault for a node without
    factors, and for a voltage outside their range."""
    if "node" not in options and "voltage" not in options:
        return 1.0, ""
    if "node" in options and "voltage" not in options:
        raise fault_of("the node has no voltage", "write voltage: 0.8, the supply in volts", "missing-value")
    node = _node(options)
    volts = option_number(options, "voltage", _AT[1])
    if node not in _NODES:
        known = ", ".join(f"{n}e-9" for n in _NODES)
        fault = f"there are no published factors of {node:g} nm"
        raise fault_of(fault, f"nodes in metres: {known}", "unknown-name")
    square, linear, _ = _NODES[int(node)]
    least = -linear / (2 * square)
    if volts <= least:
        what = f"the factors of {node:g} nm do not hold at {volts:g} V"
        remedy = f"write more than {least:.2f} V, where energy rises with the voltage"
        raise fault_of(what, remedy, "out-of-range")

    def relative(n: int, v: float) -> float:
        a, b, c = _NODES[n]
        return a * v * v + b * v + c

    factor = relative(int(node), volts) / relative(*_AT)
    return factor, f"; to {node:g} nm at {volts:g} V by {STILLMAKER}: times {factor:.4g}"


def _of_memory(request: EnergyRequest, name: str, factor: float, technology: str) -> EnergyAnswer:
    if name == "dram":
        how = "DRAM, the least of 1.3 to 2.6 nJ for 64 bits"
        return _moved(request, _DRAM / _ACCESS, f"{HOROWITZ}: {how}")
    ports, of_ports = _ports(request.options)
    factor *= ports
    technology += of_ports
    if name == "register_file":
        energy, said = _summed(_OPERATIONS, [("int_multiply", _WORD), ("int_add", 32)])
        how = f"register file of 0.5 kB: an access as much as a multiply-accumulate ({EYERISS}), that of"
        return _moved(request, energy / _WORD * factor, f"{how} {HOROWITZ}: {said}{technology}")
    size = option_number(request.options, "size", request.size)
    if math.isinf(size):
        raise fault_of("the size of the SRAM is not given", "write size: of the memory", "missing-value")
    width = option_number(request.options, "width", _ACCESS)
    macros = max(width / _ACCESS, 1)  # each gives 64 bits
    energy, added = _interpolated(_SRAM, size / macros)
    several = f"{macros:g} macros of {size / macros / _KIB:g} KiB side by side: " if macros > 1 else ""
    narrow = f", of which an access uses {width:g} bits" if width < _ACCESS else ""
    how = f"{several}SRAM of {size / macros / _KIB:g} KiB{added}{narrow}{technology}"
    result = _moved(request, energy / min(width, _ACCESS) * factor, f"{HOROWITZ}: {how}")
    return _with_cells(request, result, size)


def _ports(options: Mapping[str, object]) -> tuple[float, str]:
    """Return the number of ports, and its effect on energies. Each adds a word line and a bit line to a cell,
    so that its sides grow, and with them the wires that an access charges."""
    ports = option_number(options, "ports", 1)
    if ports % 1:
        raise fault_of(f"ports={ports:g} is not a whole number", "write ports: 2, say", "not-a-number")
    return ports, f"; {ports:g} ports ({RIXNER}): times {ports:g}" if ports > 1 else ""


def _with_cells(request: EnergyRequest, answer: EnergyAnswer, size: float) -> EnergyAnswer:
    """Return the answer with the area of an SRAM, if one of its node was published."""
    share, node = option_number(request.options, "array_efficiency", 1), _node(request.options)
    if share > 1:
        what = f"array_efficiency={share:g} is above 1"
        raise fault_of(what, "write the share of the macro that its cells take, e.g. 0.7", "out-of-range")
    if node not in _CELLS or "area" not in request.quantities:
        return answer
    cell, source = _CELLS[int(node)]
    ports, _ = _ports(request.options)
    besides = f"{share:.4g} of the macro" if share < 1 else "without the peripheral circuits"
    more = f"; {ports:g} ports ({RIXNER}): times {ports**2:g}" if ports > 1 else ""
    origin = f"cells of {cell * 1e12:g} um^2 ({source}, {node:g} nm), {besides}{more}"
    area = cell * size / share * ports**2
    return EnergyAnswer({**answer.values, "area": area}, {**answer.provenance, "area": origin})


def _of_wire(request: EnergyRequest) -> EnergyAnswer:
    if "length" not in request.options:
        raise fault_of(
            "the length of the wire is not given", "write length: 1e-3, in metres", "missing-value"
        )
    metres = option_number(request.options, "length", 1)
    volts = option_number(request.options, "voltage", _WIRE_VOLTS)
    factor = (volts / _WIRE_VOLTS) ** 2
    scaled = f"; at {volts:g} V by its square: times {factor:.4g}" if factor != 1 else ""
    return _moved(request, _WIRE * metres * factor, f"{KECKLER}: wire of {metres * 1e3:g} mm{scaled}")


def _moved(request: EnergyRequest, each: float, origin: str) -> EnergyAnswer:
    """Return the energies of reads and writes, from joules per bit."""
    bits = request.bits_per_action
    ways = [way for way in ("read", "write") if way in request.quantities]
    values: dict[str, float] = {way: each * bits.get(way, 1) for way in ways}
    return EnergyAnswer(values, dict.fromkeys(values, origin))


def _interpolated(points: Mapping[int, float], at: float) -> tuple[float, str]:
    """Return the value at `at`, and a note on how it was derived if it is not a published point: it lies on
    the straight line through the two nearest points, on logarithmic axes."""
    if at in points:
        return points[int(at)], ""
    places = sorted(points)
    high = next((p for p in places[1:] if at < p), places[-1])
    low = places[places.index(high) - 1]
    slope = math.log(points[high] / points[low]) / math.log(high / low)
    inside = places[0] < at < places[-1]
    how = "interpolated" if inside else "extrapolated"
    return points[low] * (at / low) ** slope, f", {how} on logarithmic axes"
