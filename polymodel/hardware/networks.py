"""Networks that one machine serves: their layers and weights, and the combinations of their mappings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.hardware.layers import Combined, Figures, combined, separate
from polymodel.hardware.request import COSTS, EACH, NO_NETWORKS, CodesignRequest
from polymodel.loading import Spec
from polymodel.loading.reading import with_workload
from polymodel.objectives import of_network, value
from polymodel.pareto import undominated
from polymodel.spec.faults import Faults, not_a_spec, suggestion
from polymodel.spec.section_schemas import CodesignSection, ExploreSection
from polymodel.sweeps.grid import Grid

Array = Any
Layers: TypeAlias = "Spec | Sequence[Spec | tuple[Spec, int] | tuple[Spec, int, str]]"
Networks: TypeAlias = "Layers | Mapping[str, Layers]"
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Network:
    """Layers that run in sequence, by their `places` among those of all networks.

    The name is empty if layers are given without one. `weight`: that of its figures in those of all networks.
    """

    name: str
    places: tuple[int, ...]
    weight: int | float = 1


@dataclass(frozen=True)
class NetworkLayers:
    """The layers of all networks, and the number of executions of each in one run of its network.

    `blocks`: the number of its executions in each of its blocks (`""`: in none); empty if its Einsums belong
    to several.
    """

    specs: tuple[Spec, ...]
    times: tuple[int, ...]
    networks: tuple[Network, ...]
    blocks: tuple[Mapping[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of networks; empty if layers are given without one."""
        return tuple(n.name for n in self.networks if n.name)

    def blocks_of(self, layer: int) -> tuple[str, ...]:
        """The names of the blocks in which a layer is executed, or to which its Einsums belong."""
        workload = self.specs[layer].raw_workload
        found = self.blocks[layer] or (workload.blocks.values() if workload else ())
        return tuple(dict.fromkeys(b for b in found if b))

    @property
    def split(self) -> bool:
        """Return whether a layer has Einsums of blocks, whose costs an evaluation distinguishes."""
        return any(not at and self.blocks_of(i) for i, at in enumerate(self.blocks))

    def weighted(self, weights: object, faults: Faults) -> NetworkLayers:
        """The networks with weights: network -> number. Reports faults."""
        given = weights if isinstance(weights, Mapping) else {}
        if weights is not None and not isinstance(weights, Mapping):
            message = f"{weights!r} are not weights"
            faults.note(Diagnostic(message, "give {'NETWORK': 2}", "weights", code="wrong-type"))
        for name, weight in given.items():
            if name not in self.names:
                remedy = suggestion(str(name), self.names, "networks") if self.names else NO_NETWORKS
                message = f"there is no network {name}"
                faults.note(Diagnostic(message, remedy, f"weights.{name}", code="unknown-name"))
            elif isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < inf:
                what = f"{weight!r} is not a weight"
                faults.note(Diagnostic(what, "give a number above 0", f"weights.{name}", code="wrong-type"))
        every = tuple(replace(n, weight=given.get(n.name, 1)) for n in self.networks)
        return replace(self, networks=every)

    def one_by_one(self, grid: Grid, given: ExploreSection) -> tuple[NetworkLayers, tuple[Spec, ...]]:
        """Every Einsum as a layer of its own, equal ones of a network once, and the spec that each comes
        from.

        Raises SpecError if tensors must be fused.
        """
        if any(section.fuse for s in self.specs for section in (s.raw_explore or ExploreSection(), given)):
            what = "nothing is fused where each Einsum is a layer of its own"
            remedy = "leave out `fuse`, or layer_by_layer"
            raise SpecError([Diagnostic(what, remedy, "constraints.fuse", code="ineffective-argument")])
        specs: list[Spec] = []
        times: list[int] = []
        wholes: list[Spec] = []
        networks: list[Network] = []
        blocks: list[Mapping[str, int]] = []
        for network in self.networks:
            first = len(specs)
            for place in network.places:
                n, named = self.times[place], self.blocks[place]
                for one, at in separate(self.specs[place], grid, given):
                    specs.append(one)
                    times.append(sum(at.values()) * n)
                    # a block given for the whole spec overrides those of its Einsums
                    own = dict.fromkeys(named, times[-1]) if any(named) else {b: k * n for b, k in at.items()}
                    blocks.append(own)
                    wholes.append(self.specs[place])
            networks.append(replace(network, places=tuple(range(first, len(specs)))))
        every = NetworkLayers(tuple(specs), tuple(times), tuple(networks), tuple(blocks))
        return every, tuple(wholes)


def read_networks(given: object, faults: Faults) -> NetworkLayers:
    """Layers with or without the names of their networks. Reports faults."""
    if isinstance(given, Spec) and given.raw_codesign is not None and given.raw_codesign.networks:
        given = _of_section(given, given.raw_codesign)
    by_name = dict(given) if isinstance(given, Mapping) else {"": given}
    if not by_name:
        raise not_a_spec("codesign", given)
    specs: list[Spec] = []
    times: list[int] = []
    networks: list[Network] = []
    blocks: list[Mapping[str, int]] = []
    for name, layers in by_name.items():
        if isinstance(given, Mapping) and not _is_name(name):
            what = f"{name!r} is not a name of a network"
            remedy = f"use letters, digits, `.`, `-` and `_`, but not `{EACH}`"
            faults.note(Diagnostic(what, remedy, "layers", code="invalid-name"))
        first = len(specs)
        rows = _rows(layers, f" of {name}" if isinstance(given, Mapping) else "", faults)
        for spec, several, block in rows:
            specs.append(spec)
            times.append(several)
            blocks.append(_block_of(spec, several, block))
        networks.append(Network(str(name), tuple(range(first, len(specs)))))
    for i, spec in enumerate(specs[1:], 1):
        if spec.raw_arch != specs[0].raw_arch:
            what = f"layer {i} has another architecture than layer 0"
            remedy = "load all layers with the same architecture"
            faults.note(Diagnostic(what, remedy, "layers", code="inconsistent-values"))
    return NetworkLayers(tuple(specs), tuple(times), tuple(networks), tuple(blocks))


def _block_of(spec: Spec, times: int, block: str) -> Mapping[str, int]:
    """The block in which a layer is executed: the given one, otherwise that of its Einsums; empty if these
    are several."""
    own = {*spec.raw_workload.blocks.values()} if spec.raw_workload else {""}
    if block or len(own) == 1:
        return {block or own.pop(): times}
    return {}


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name != EACH and _NAME.fullmatch(name) is not None


def _rows(layers: object, whose: str, faults: Faults) -> list[tuple[Spec, int, str]]:
    """The specs of some layers, with the number of executions and the block of each (empty: none is
    given)."""
    several = layers
    if isinstance(layers, Spec) or (isinstance(layers, tuple) and _is_row(layers)):
        several = (layers,)
    if not isinstance(several, Sequence) or isinstance(several, str) or not several:
        raise not_a_spec("codesign", layers)
    rows = []
    for i, one in enumerate(several):
        given = one if isinstance(one, tuple) and len(one) in (2, 3) else (one, 1)
        spec, n, block = given if len(given) == 3 else (*given, "")
        if not isinstance(spec, Spec):
            raise not_a_spec("codesign", spec)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            what = f"layer {i}{whose} is executed {n!r} times"
            remedy = "give a whole number from 1 on"
            faults.note(Diagnostic(what, remedy, "layers", code="inconsistent-values"))
            n = 1
        if not isinstance(block, str):
            what = f"layer {i}{whose} is in the block {block!r}"
            faults.note(Diagnostic(what, "give the name of a block as text", "layers", code="wrong-type"))
            block = ""
        rows.append((spec, n, block))
    return rows


def _is_row(layers: tuple[object, ...]) -> bool:
    """Whether this is one layer with its number of executions and its block, rather than a list of layers."""
    few = len(layers) in (2, 3)
    return few and isinstance(layers[0], Spec) and not isinstance(layers[1], (Spec, tuple))


def _of_section(spec: Spec, section: CodesignSection) -> Mapping[str, Layers]:
    """The networks that a `codesign:` section names, on the machine of the spec.

    Raises SpecError with all faults.
    """
    faults = Faults(spec.locator)
    if spec.raw_workload is not None:
        what = "the spec has a workload beside its networks"
        faults.add(("codesign", "networks"), what, "leave out one of them", code="missing-section")
    result: dict[str, list[tuple[Spec, int]]] = {}
    for name, layers in section.layers.items():
        result[name] = []
        path = ("codesign", "networks", name)
        if not layers:
            faults.add(path, f"network {name} has no layers", "write e.g. {conv2d: 3}", code="missing-value")
        for sources, times in layers:
            if times < 1:
                what = f"{sources[0]} of network {name} is executed {times} times"
                remedy = "give a whole number from 1 on"
                faults.add((*path, sources[0]), what, remedy, code="inconsistent-values")
            whose = f"network {name}" if len(layers) == 1 else f"{sources[0]} of network {name}"
            with faults.noting():
                one = with_workload(spec, sources, spec.codesign_folder, whose)
                result[name].append((one, times))
    faults.raise_if_any()
    return result


def together(
    networks: Sequence[Network], parts: Sequence[tuple[Figures, int]], asked: CodesignRequest
) -> Combined | str:
    """The undominated combinations of one mapping per layer that obey the limits of each network; or the
    limits that no mappings obey.

    They are compared by everything that the joint front depends on. `parts`: for each layer the figures of
    its mappings, and the number of its executions. Figures of all networks together are weighted sums (of
    working sets the largest); those of one are named `latency of NETWORK`.
    """
    each: list[tuple[Figures, int | float]] = []
    picks: list[Array] = []
    for network in networks:
        own = combined([parts[i] for i in network.places], asked.searched)
        values = {n: value(n, PlainFigures(own.figures)) for n in asked.figures_of(network.name)}
        good = np.ones(len(own), bool)
        limits = asked.limits_of(network.name) if network.name else ()
        for limit in limits:
            good &= limit.limit.admits(values[limit.limit.name])
        if not good.any():
            return f"no mapping keeps {' and '.join(map(str, limits))}"
        columns = {n: own.figures[n] for n in dict.fromkeys([*asked.totals, *COSTS])}
        for other in (n.name for n in networks if n.name):
            for n in asked.figures_of(other):
                columns[of_network(n, other)] = values[n] if other == network.name else np.zeros(len(own))
        left = np.flatnonzero(good)
        left = left[undominated(np.stack([np.asarray(columns[n], float)[left] for n in asked.joined]))]
        each.append(({n: v[left] for n, v in columns.items()}, network.weight))
        picks.append(own.picks[left])
    both = combined(each, asked.joined)
    chosen = [mine[both.picks[:, k]] for k, mine in enumerate(picks)]
    return Combined(both.figures, np.concatenate(chosen, axis=1))


class PlainFigures:
    """`objectives.Figures` by name; the area is that of a machine."""

    def __init__(self, figures: Figures, area: float = 0.0) -> None:
        self.figures, self.area = figures, area

    @property
    def energy(self) -> Array:
        return self.figures["energy"]

    @property
    def latency(self) -> Array:
        return self.figures["latency"]

    @property
    def utilisation(self) -> Array:
        return self.figures["utilisation"]

    def moved(self, component: str, way: str) -> Array:
        return self.figures[f"{way}:{component}"]

    def working_set(self, component: str) -> Array:
        return self.figures[f"working_set:{component}"]

    def busiest(self, component: str, way: str) -> Array:
        return self.figures[f"busiest_{way}:{component}"]

    def used(self, dimension: str) -> Array:
        return self.figures[f"used:{dimension}"]
