"""Constraints as given in Python, a dictionary or `Limits`, read as an `explore:` section."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace

from polymodel.errors import Diagnostic
from polymodel.mapper.records import Limits
from polymodel.spec.document import Document, read_mapping
from polymodel.spec.explore_schema import ExploreSection
from polymodel.spec.plain import shown

Constraints = Limits | Mapping[str, object] | ExploreSection
SHARES = 'write {"PE": {"X": 0.5}} or (("PE", "X", 0.5),)'


def given_section(constraints: object) -> tuple[ExploreSection, tuple[Diagnostic, ...]]:
    """A section in which only what was given is set, and the faults of what had to be left out of it."""
    if constraints is None:
        return ExploreSection(), ()
    if isinstance(constraints, ExploreSection):
        return constraints, ()
    if isinstance(constraints, Limits):
        return _read(*_of_limits(constraints))
    if not isinstance(constraints, Mapping):
        remedy = 'write e.g. {"max_fused_loops": 1}, or pm.Limits(max_fused_loops=1)'
        fault = Diagnostic(f"{shown(constraints)} is no set of constraints", remedy, "constraints")
        return ExploreSection(), (fault,)
    return _read({str(k): v for k, v in constraints.items()})


def _read(
    data: dict[str, object], faults: tuple[Diagnostic, ...] = ()
) -> tuple[ExploreSection, tuple[Diagnostic, ...]]:
    document = Document()
    read_mapping({"explore": data}, document)
    told = [replace(d, path=d.path.replace("explore", "constraints", 1)) for d in document.faults.found]
    # What is right besides is read all the same, so that wrong values in it are told with these faults.
    found = document.sections.get("explore", document.rest)
    assert isinstance(found, ExploreSection)
    return found, (*faults, *told)


def _of_limits(limits: Limits) -> tuple[dict[str, object], tuple[Diagnostic, ...]]:
    """The fields as a dictionary; each may be in the form that the dictionary has as well."""
    data: dict[str, object] = {f.name: getattr(limits, f.name) for f in fields(limits)}
    faults: list[Diagnostic] = []
    for name in ("loop_order", "compute"):
        if _rows(data[name], 2):
            data[name] = dict(data[name])  # type: ignore[call-overload]  # rows of two
    given = data["min_utilisation"]
    if _rows(given, 3):
        data["min_utilisation"] = _nested(limits)
    elif not isinstance(given, Mapping):
        del data["min_utilisation"]
        what = f"{given!r} is no set of (component, dimension, share)"
        faults.append(Diagnostic(what, SHARES, "constraints.min_utilisation"))
    for name in ("fuse", "unfused"):
        given = data[name]
        if isinstance(given, Collection) and not isinstance(given, str):
            data[name] = " | ".join(sorted(map(str, given))) or None
    return data, tuple(faults)


def _rows(given: object, width: int) -> bool:
    """Whether a field has the form of the record: rows of so many cells."""
    return (
        isinstance(given, Collection)
        and not isinstance(given, (str, Mapping))
        and all(isinstance(row, (tuple, list)) and len(row) == width for row in given)
    )


def _nested(limits: Limits) -> dict[str, dict[str, object]]:
    shares: dict[str, dict[str, object]] = {}
    for component, dim, least in limits.min_utilisation:
        shares.setdefault(component, {})[dim] = least
    return shares
