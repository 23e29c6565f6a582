"""A TeAAL architecture as an ordinary one, where its parts have a counterpart."""

from __future__ import annotations

import math

from polymodel.spec.arch_schema import Action, Arch, ArchNode, ComputeUnit, Container, Fanout, Memory
from polymodel.spec.teaal.records import MEMORIES, Component, Configuration, Level, TeaalSpec


def arch_of(spec: TeaalSpec) -> tuple[Arch | None, tuple[str, ...]]:
    """The architecture of the spec's Einsums, None where there is none; remarks say what is left out.

    DRAM, Buffet and Cache become memories (width times depth bits, their bandwidth for reads and writes
    together), Compute a compute unit of one operation per cycle, levels with several instances a fanout.
    """
    if not spec.configurations:
        return None, ()
    configuration = _chosen(spec)
    if configuration is None:
        names = ", ".join(c.name for c in spec.configurations)
        return None, (f"its Einsums run on different architectures ({names}), and a dense count knows one",)
    nodes: list[ArchNode] = []
    remarks: list[str] = []
    level: Level | None = configuration.root
    while level is not None:
        _add(level, configuration, nodes, remarks)
        below = [x for x in level.subtree if x.components]
        if len(below) > 1:
            names = ", ".join(x.name for x in below)
            remarks.append(
                f"architecture {configuration.name} forks into {names}, and a dense count knows lines"
            )
            return None, tuple(remarks)
        level = below[0] if below else None
    if not any(isinstance(n, ComputeUnit) for n in nodes):
        remarks.append(f"architecture {configuration.name} has no Compute, so nothing is counted dense on it")
        return None, tuple(remarks)
    if not any(isinstance(n, Memory) for n in nodes):
        remarks.append(f"architecture {configuration.name} has no memory, so nothing is counted dense on it")
        return None, tuple(remarks)
    remarks.append("TeAAL gives no energies: those of its architecture are 0")
    return Arch(nodes=tuple(nodes), name=configuration.name), tuple(remarks)


def _chosen(spec: TeaalSpec) -> Configuration | None:
    """The configuration that every Einsum with bindings names; the only one there is."""
    named = {b.config for b in spec.einsum_bindings if b.config}
    found = [c for c in spec.configurations if not named or c.name in named]
    return found[0] if len(found) == 1 else None


def _add(level: Level, configuration: Configuration, nodes: list[ArchNode], remarks: list[str]) -> None:
    if level.instances > 1:
        taken = {c.name for c in configuration.components} | {n.name for n in nodes}
        name = level.name if level.name not in taken else f"{level.name}Level"
        nodes.append(Container(name=name, spatial=(Fanout(name=level.name, fanout=level.instances),)))
    # Data comes through the memories of a level to its compute units.
    ordered = sorted(level.local, key=lambda c: (c.kind not in MEMORIES, c.kind == "Compute"))
    for component in ordered:
        if component.kind in MEMORIES:
            nodes.append(_memory(component))
        elif component.kind == "Compute":
            nodes.append(_compute(component, configuration))
        else:
            what = f"{component.type} {component.kind}".strip()
            remarks.append(f"{component.name} ({what}) has no counterpart in dense counts")


def _memory(component: Component) -> Memory:
    given = component.attributes
    bandwidth = _number(given.get("bandwidth", math.inf))
    size: float | int | str = math.inf
    if component.kind != "DRAM" and "width" in given and "depth" in given:
        size = f"({given['width']}) * ({given['depth']})"
    actions = tuple(Action(name=n, energy=0, throughput=bandwidth) for n in ("read", "write"))
    return Memory(name=component.name, size=size, actions=actions)


def _compute(component: Component, configuration: Configuration) -> ComputeUnit:
    clock = component.attributes.get("clock_frequency", configuration.root.attributes.get("clock_frequency"))
    rate = math.inf if clock is None else _number(clock)
    return ComputeUnit(name=component.name, actions=(Action(name="compute", energy=0, throughput=rate),))


def _number(value: int | float | str | bool) -> int | float | str:
    return int(value) if isinstance(value, bool) else value
