"""Protection of inputs: no output of a command may overwrite one of its inputs; the code that writes the
files lists them.

Outputs are declared before anything is read. Names that are not known by then, such as results named after
tensors of a spec, are checked later, by the command or when they are written.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from glob import escape
from itertools import chain
from pathlib import Path

from polymodel.spec.files import claim


def claim_outputs(options: argparse.Namespace) -> None:
    """Declare the files that the command will write, so that reading one of them as an input is refused."""
    for name in ("html", "plot"):
        if getattr(options, name, None):
            claim(getattr(options, name))
    for option, names in _NAMES.get(options.name_of_command, {}).items():
        folder = getattr(options, option, None)
        if folder and Path(folder).is_dir():
            for name in names(options):
                claim(*sorted(Path(folder).glob(name)))


def _evaluate(options: argparse.Namespace) -> Iterable[str]:
    from polymodel.report.evaluated import TABLES
    from polymodel.report.show import PICTURES
    from polymodel.report.sparse import TABLES as SPARSE
    from polymodel.report.tiling.level import TABLES as TILING

    tables = [*TABLES, *(f"sparse_{n}" for n in SPARSE), *(f"tiling_{n}" for n in TILING)]
    for ending in (".csv", ".parquet") if options.parquet else (".csv",):
        yield from (f"{name}{ending}" for name in tables)
    yield from ("report.json", "report.html", "report.txt", "sparse.html", *PICTURES)


def _show(_: argparse.Namespace) -> Iterable[str]:
    from polymodel.report.show import PICTURES

    return PICTURES


def _timeline(options: argparse.Namespace) -> Iterable[str]:
    from polymodel.report.timeline import saved_names

    return map(escape, saved_names(options.component, options.measure))


def _explore(_: argparse.Namespace) -> Iterable[str]:
    from polymodel.mapper.front import Front

    tables = (f"{name}.csv" for name in Front.declared)
    return (*tables, "front.parquet", "front.txt", "explore.yaml", "mapping-[1-9]*.yaml")


def _codesign(_: argparse.Namespace) -> Iterable[str]:
    from polymodel.hardware.answer import Codesign

    tables = (f"{name}{ending}" for name in Codesign.declared for ending in (".csv", ".parquet"))
    return (*tables, "codesign.txt", "point-[0-9]*-layer-[0-9]*.yaml")


def _distribute(_: argparse.Namespace) -> Iterable[str]:
    from polymodel.hardware.chips import Distribution

    return (f"{name}.csv" for name in Distribution.declared)


def _tile(options: argparse.Namespace) -> Iterable[str]:
    from polymodel.report.tiling import chain, files, matmul, simulation, swift

    if options.published:
        return (*(f"{name}.csv" for name in swift.TilerSwift.declared), *files.CHARTS)
    if options.simulate:
        return tuple(f"{name}.csv" for name in simulation.TileSimulation.declared)
    if options.op == "chain":
        return tuple(f"{name}.csv" for name in chain.ChainTiling.declared)
    if options.op == "matmul":
        return tuple(f"{name}.csv" for name in matmul.TABLES)
    if options.tune or options.estimate:
        return ("steps.csv" if options.tune else "estimates.csv",)
    return (*files.TEXTS, *files.PICTURES)


def _sparse(options: argparse.Namespace) -> Iterable[str]:
    from polymodel.cli.sparse import TABLE, picture_names
    from polymodel.report.density_fit import DensityFit
    from polymodel.sparse.files import stem_of

    if options.fit:
        return (f"{name}.csv" for name in DensityFit.declared)
    pictures = (picture_names(stem_of(Path(file))).values() for file in options.files)
    return (TABLE, *map(escape, chain.from_iterable(pictures)))


def _execute(_: argparse.Namespace) -> Iterable[str]:
    from polymodel.cli.execute import PICTURES
    from polymodel.report.execution import ExecutionReport

    return (*(f"{name}.csv" for name in ExecutionReport.declared), *PICTURES)


def _traffic(_: argparse.Namespace) -> Iterable[str]:
    from polymodel.report.traffic import TrafficReport

    return (f"{name}.csv" for name in TrafficReport.declared)


def _gallery(_: argparse.Namespace) -> Iterable[str]:
    from polymodel.exhibits.records import Gallery

    return (*(f"{name}.csv" for name in Gallery.declared), "gallery.json", "gallery.html", "gallery.txt")


def _schema(_: argparse.Namespace) -> Iterable[str]:
    from polymodel.spec.schemas import KINDS

    return (f"{kind}.schema.json" for kind in KINDS)


def _export(options: argparse.Namespace) -> Iterable[str]:
    from polymodel.cli.export import NAMES

    return NAMES[options.tool]


def _one_table(options: argparse.Namespace) -> Iterable[str]:
    from polymodel.cli.output import FORMATS

    return (f"{options.name_of_command}.{ending}" for ending in FORMATS)


def _always(*names: str) -> Callable[[argparse.Namespace], Iterable[str]]:
    return lambda _: names


_NAMES: dict[str, dict[str, Callable[[argparse.Namespace], Iterable[str]]]] = {
    "evaluate": {"out": _evaluate},
    "show": {"out": _show},
    "timeline": {"out": _timeline},
    "sweep": {
        "out": _always("sweep.csv", "sweep.parquet", "best.yaml"),
        "store": _always("state-*.parquet", "front-*.parquet", "rows.parquet", "lock.json"),
    },
    "explore": {"out": _explore, "store": _always("found-*.parquet", "lock.json")},
    "codesign": {"out": _codesign, "store": _always("[0-9a-f]" * 16)},
    "distribute": {"out": _distribute, "store": _always("[0-9a-f]" * 16)},
    "tile": {"out": _tile, "export": _always("index.json", "tile_[0-9]*_[AB].*")},
    "sparse": {"out": _sparse},
    "compare": {"out": _one_table},
    "tensaurus": {"out": _one_table},
    "execute": {"out": _execute},
    "traffic": {"out": _traffic},
    "export": {"out": _export},
    "gallery": {"out": _gallery},
    "schema": {"out": _schema},
}
