"""`gallery`: published results, recomputed on demand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

from polymodel.errors import Diagnostic, SpecError
from polymodel.exhibits.records import Exhibit, Gallery, PublishedFigure
from polymodel.governor import look
from polymodel.spec.faults import suggestion

# Modules of this package that define an EXHIBIT, imported when it is shown.
EXHIBITS = (
    "fused_layers",
    "eyeriss",
    "tpu_v1",
    "nvdla",
    "looptree",
    "timeloop_page",
    "orojenesis",
    "tensaurus",
    "gamma",
    "outerspace",
    "extensor",
    "sigma",
    "sparseloop",
    "sparseloop_pe",
    "sparseloop_dram",
    "sparse_tensor_core",
    "highlight",
    "tailors",
    "drt",
    "tiler_swift",
    "models",
    "passes",
    "bounds",
)


def exhibits() -> tuple[Exhibit, ...]:
    """Return all exhibits, without computing anything."""
    return tuple(map(_exhibit, EXHIBITS))


def gallery(*names: str) -> Gallery:
    """Compute the figures of the named exhibits, or of all, beside the published ones.

    `gallery().figures` is a DataFrame. Raises SpecError for an unknown name.
    """
    faults = [
        Diagnostic(
            f"there is no exhibit {n!r}",
            suggestion(n, EXHIBITS, "exhibits"),
            f"names[{i}]",
            code="unknown-name",
        )
        for i, n in enumerate(names)
        if n not in EXHIBITS
    ]
    if faults:
        raise SpecError(faults)
    chosen = tuple(map(_exhibit, names or EXHIBITS))
    return Gallery(chosen, tuple(_figures(chosen)))


def _exhibit(name: str) -> Exhibit:
    result: Exhibit = import_module(f"polymodel.exhibits.{name}").EXHIBIT
    return result


def _figures(chosen: tuple[Exhibit, ...]) -> Iterator[PublishedFigure]:
    for exhibit in chosen:
        look(f"the exhibit {exhibit.name}")
        for figure in exhibit.figures():
            yield replace(figure, exhibit=exhibit.name)
