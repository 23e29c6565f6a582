"""The command `polymodel export`: write a spec as files of another tool, so that that tool can evaluate
it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE
from polymodel.cli.options import add_sources
from polymodel.cli.progress import waiting
from polymodel.cli.specs import load_spec
from polymodel.errors import writing

if TYPE_CHECKING:
    from polymodel.loading import Spec

NAME, ABOUT = "export", "Write a spec as files of another tool, and name what it has no counterpart for."
# All files that may be written, by tool.
NAMES = {
    "timeloop": ("problem.yaml", "arch.yaml", "ERT.yaml", "ART.yaml", "mapping.yaml"),
    "accelforge": ("workload.yaml", "arch.yaml", "mapping.yaml"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the tool, the spec, and the destination of the files."""
    parser.add_argument("tool", choices=tuple(NAMES), help="whose files are written")
    add_sources(parser)
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="export although the tool has no counterpart for this; may be repeated",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="write a file for each part there; default: all on stdout"
    )


@waiting("writing")
def run(options: argparse.Namespace) -> tuple[str, int]:
    """Write the files, joined on stdout or separately into a folder, after they have been read back and
    compared with the spec."""
    result = _files(options.tool, load_spec(options), options.allow)
    if options.out is None:
        return "\n".join(result.values()), FINE
    return "".join(f"wrote {path}\n" for path in _written(options.out, result)), FINE


def _files(tool: str, spec: Spec, allow: list[str]) -> dict[str, str]:
    """Return the YAML text of each file by name."""
    if tool == "timeloop":
        from polymodel.importers.timeloop.export import timeloop_files

        return timeloop_files(spec, allow)
    from polymodel.importers.accelforge.export import accelforge_files

    return accelforge_files(spec, allow)


def _written(folder: str, files: dict[str, str]) -> list[Path]:
    from polymodel.spec.files import write_text

    result = []
    with writing(folder):
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_text(root / name, text)
            result.append(root / name)
    return result
