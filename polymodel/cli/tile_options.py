"""The options of `polymodel tile`, and the conversion of their texts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from polymodel.cli.options import add_format
from polymodel.cli.parser import NumberOption
from polymodel.errors import Diagnostic, SpecError

if TYPE_CHECKING:
    from polymodel.tiling.cost.model import Launch
    from polymodel.tiling.fits.fit import Fit
    from polymodel.tiling.plane.operands import Second, Transposed
    from polymodel.tiling.tilers.named import Objective

PRODUCT = ("tile", "order", "pes", "bandwidth")  # options of matrix products
CHAINED = ("split", "buffers", "keep_configured")  # options of --op chain alone
SHAPED = ("shape", "density")  # options of --estimate alone
CAPACITY, BUFFER, MOST = 128, 512, 20_000
_SIZE = NumberOption("positive integer", CAPACITY, 1)
NUMBERS = {
    "capacity": _SIZE,
    "config": NumberOption("whole number of cycles from 0 to 10^9", 824, 0, 10**9),
    "clock": NumberOption("number of MHz from 1e-9 to 1e9", 1000, 1e-9, 1e9, real=True),
    "pes": replace(_SIZE, example=16),
    "bandwidth": NumberOption("number of words a cycle above 0", 4, sys.float_info.min, real=True),
    "density": NumberOption("share of nonzero points, from 0 to 1", 0.01, 0, 1, real=True),
    "most": replace(_SIZE, example=MOST),
    "split": replace(_SIZE, example=8),
    "buffers": replace(_SIZE, example=2),
    "simulate": replace(_SIZE, example=200),
    "seed": NumberOption("whole number from 0 up", 0, 0),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE",
        help="operand A: .mtx, .mtx.gz, .tns or .tns.gz; with --op chain A, B, C; with --published several",
    )  # fmt: skip
    _add_task(parser)
    _add_machine(parser)
    _add_product(parser)
    _add_chain(parser)
    _add_simulation(parser)
    _add_estimate(parser)
    _add_output(parser)


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--op", choices=("add", "multiply", "mul", "matmul", "chain"), default="add",
        help="element by element, a product of matrices (matmul), or two in a row (chain) (default: add)",
    )  # fmt: skip
    parser.add_argument(
        "--with", dest="second", metavar="FILE|HOW",
        help="operand B: a file, rolled[:ROWS], transposed or nothing (default: rolled:5; of a product A)",
    )  # fmt: skip
    parser.add_argument(
        "--ranks", metavar="I,J", help="the two ranks to cut, rows first (default: the first)"
    )
    parser.add_argument(
        "--names", metavar="NAMES",
        help="of the file's ranks, e.g. I,J,K; a .tns file with as many columns as names has no values",
    )  # fmt: skip
    parser.add_argument(
        "--tiler", default="best", metavar="NAME",
        help="the tiler: best of all (default), simple, qtree, btree, strips, columns, panels, guillotine; "
        "also NAME+merge, NAME+fixpoint; of a product uniform, panels, dynamic, overbooked",
    )  # fmt: skip
    parser.add_argument(
        "--objective", choices=("cycles", "tiles", "total", "words"),
        help="what `best` minimises: configuration and run (total, default), the run alone (cycles), "
        "kernels (tiles); of a product its time (cycles, default) or words moved",
    )  # fmt: skip
    parser.add_argument(
        "--compat", choices=("tiler-swift",), help="repeat that tool, with the defects behind its figures"
    )
    parser.add_argument(
        "--published", action="store_true",
        help="Tiler-Swift's published charts and claims beside its program's figures and corrected ones",
    )  # fmt: skip
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="expected results under a density model, without tiling the data",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="choose each next tiling by the model's figure of the previous ones",
    )


def _add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fit", default="elements", metavar="WHAT",
        help="what the capacity counts: elements (default), words of DCSR, or a format's bits, e.g. CSR",
    )  # fmt: skip
    parser.add_argument(
        "--capacity",
        metavar="N",
        help=f"of a tile's memory (default: {CAPACITY} elements or words; of a product {BUFFER} words each "
        "for A, B, Z); with --op chain words of each buffer, or five numbers: of A, B, T, C and Z",
    )
    parser.add_argument(
        "--run", dest="which", choices=("nonempty", "all"), default="nonempty",
        help="which tiles are launched: those that can have a result (default), or all",
    )  # fmt: skip
    parser.add_argument("--config", metavar="CYCLES", help="to configure one kernel (default: 824, 907)")
    parser.add_argument(
        "--cycles", choices=("tokens", "blocks"), default="tokens",
        help="of a kernel: a token a cycle (default), or with stops and waits of the simulated blocks",
    )  # fmt: skip
    parser.add_argument(
        "--clock", metavar="MHZ", help="clock that converts cycles to seconds (default: 1000)"
    )


def _add_product(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("products (--op matmul, --op chain)")
    group.add_argument(
        "--tile", metavar="TI,TK,TJ", help="sizes of uniform or overbooked tiles (default: searched)"
    )
    group.add_argument(
        "--order", metavar="LOOPS",
        help="of the loops, outermost first, e.g. ikj (default: all); of a chain (AB)C (default) or A(BC)",
    )  # fmt: skip
    group.add_argument("--pes", metavar="N", help="multiplies a cycle (default: 1, with --op chain 2)")
    group.add_argument("--bandwidth", default=1.0, metavar="N", help="words a cycle (default: 1)")


def _add_chain(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("two products in a row, Z = A B C (--op chain)")
    group.add_argument(
        "--split", metavar="N",
        help="multiplies a cycle of the first product where both run side by side (default: its share)",
    )  # fmt: skip
    group.add_argument(
        "--buffers", metavar="N", help="panels of the intermediate result that are held (default: 2)"
    )
    group.add_argument(
        "--keep-configured", action="store_true",
        help="a part of the array that goes on with the same kernel is not configured again",
    )  # fmt: skip


def _add_simulation(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cycle by cycle")
    group.add_argument(
        "--simulate", metavar="N",
        help="run N of the launched tiles token by token, and show their cycles beside those of the model",
    )  # fmt: skip
    group.add_argument(
        "--seed", metavar="N", help="for the random choice of the simulated tiles (default: 0)"
    )


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("estimates (--estimate)")
    group.add_argument("--shape", metavar="ROWS,COLUMNS", help="instead of FILE, uniform random data ...")
    group.add_argument("--density", metavar="D", help="... of this density, from 0 to 1")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--compare", action="store_true", help="with every tiler, merged ones too")
    parser.add_argument("--plot", metavar="FILE", help="draw the matrix with its tiles: .png, .svg, .pdf")
    parser.add_argument("--export", metavar="DIR", help="write every launched tile as .mtx, with an index")
    parser.add_argument(
        "--most", metavar="N", help=f"largest number of tiles that --export writes (default: {MOST})"
    )
    parser.add_argument("--out", metavar="DIR", help="also save tables as CSV and JSON, and the pictures")
    add_format(parser)


_DEFAULTS: dict[str, tuple[object, ...]] = {
    "op": ("add",), "tiler": ("best",), "fit": ("elements",), "run": ("nonempty",),
    "bandwidth": (1.0,),
}  # fmt: skip


def check_idle(options: argparse.Namespace, mode: str, names: tuple[str, ...]) -> None:
    """Report all options that have no effect in this mode as faults."""
    plain = {"run": "which", "with": "second"}
    given = [
        n for n in names if getattr(options, plain.get(n, n)) not in (None, False, *_DEFAULTS.get(n, ()))
    ]
    needed = {
        **dict.fromkeys(PRODUCT, "--op matmul"),
        **dict.fromkeys(CHAINED, "--op chain"),
        **dict.fromkeys(SHAPED, "--estimate"),
    }
    faults = []
    for n in given:
        # With another mode the usual remedy would contradict that mode.
        way = (
            f"add {needed[n]}, or leave it out"
            if n in needed and not mode.startswith("--")
            else "leave it out"
        )
        message = f"--{n.replace('_', '-')} has no meaning with {mode}"
        faults.append(Diagnostic(message, way, code="ineffective-argument"))
    if options.seed is not None and not options.simulate and not faults:
        message = "--seed has no meaning without --simulate"
        faults.append(Diagnostic(message, "add --simulate 200", code="ineffective-argument"))
    if options.most is not None and not options.export and not faults:
        message = "--most has no meaning without --export"
        faults.append(Diagnostic(message, "add --export DIR, or leave it out", code="ineffective-argument"))
    if faults:
        raise SpecError(faults)


def factor_of(text: str | None) -> str | Transposed | None:
    """Return B of a product: from a file, the transpose of A, or A itself."""
    from polymodel.tiling.plane.operands import Transposed

    result = second_of(text)
    if result is None or isinstance(result, (str, Transposed)):
        return result
    fault = f"--with {text}: B of a product is a file, A transposed, or A itself (without --with)"
    raise SpecError([Diagnostic(fault, "name a file, or transposed", code="unknown-choice")])


def sizes_of(text: str, option: str, example: str) -> tuple[int, ...]:
    """Read integers separated by commas."""
    sizes = [_SIZE.read(part) for part in text.split(",")]
    if None in sizes:
        fault = f"--{option} {text}: whole numbers above 0 are expected"
        raise SpecError([Diagnostic(fault, f"write e.g. --{option} {example}", code="not-positive-integer")])
    return tuple(int(size) for size in sizes if size is not None)


def capacities_of(text: str | None) -> int | tuple[int, ...]:
    """Return the capacities in words of the buffers of two consecutive products: one number for all five, or
    one each."""
    if text is None:
        fault = "--op chain needs the words of its buffers, for which there is no default"
        remedy = "say how many, e.g. --capacity 4096"
        raise SpecError([Diagnostic(fault, remedy, "--capacity", code="missing-value")])
    result = sizes_of(text, "capacity", "4096,4096,2048,4096,2048")
    return result[0] if len(result) == 1 else result


def objective_of(options: argparse.Namespace, usual: Objective) -> Objective:
    """Return the metric to minimise. Words do not measure the work of a product without reuse."""
    if options.objective == "words":
        fault = "--objective words: element-wise work reads every operand once"
        raise SpecError([Diagnostic(fault, "cycles, tiles or total", code="unknown-choice")])
    result: Objective = options.objective or usual
    return result


def ranks_of(text: str | None) -> tuple[str, ...] | None:
    """Read names separated by commas."""
    return None if text is None else tuple(part.strip() for part in text.split(","))


def fit_of(options: argparse.Namespace) -> Fit:
    """Return the measure of capacity: elements, words, or bits in a format."""
    from polymodel.tiling.fits.fit import Elements, Words, stored

    capacity = CAPACITY if options.capacity is None else options.capacity
    known: dict[str, Callable[[int], Fit]] = {"elements": Elements, "words": Words}
    if options.fit in known:
        return known[options.fit](capacity)
    faults = _unknown(options.fit)
    if not faults and options.capacity is None:
        # 128 bits hold a single entry, which is certainly not intended.
        fault = f"--fit {options.fit} counts bits, for which there is no default"
        faults = [
            Diagnostic(fault, f"say how many, e.g. --fit {options.fit} --capacity 8192", code="missing-value")
        ]
    if faults:
        raise SpecError(faults)
    return stored(options.fit, capacity)


def _unknown(name: str) -> list[Diagnostic]:
    """Return the fault of an unknown format name, with similar and available names."""
    from polymodel.sparse.formats.parse import parse_format

    try:
        parse_format(name, ("I", "J"), path=f"--fit {name}")
    except SpecError as error:
        return [replace(d, remedy=f"{d.remedy}; or elements, words") for d in error.diagnostics]
    return []


def checked_product(options: argparse.Namespace) -> None:
    """Report contradictions between the options of a product."""
    faults = []
    if options.tile is not None and options.tiler in ("panels", "dynamic", "search"):
        fault = (
            f"--tile sets the sizes of uniform or overbooked tiles, --tiler {options.tiler} chooses its own"
        )
        faults.append(Diagnostic(fault, "leave one of them out", code="unknown-choice"))
    if options.objective in ("tiles", "total"):
        fault = f"--objective {options.objective}: a product is judged by its time or by the words it moves"
        faults.append(Diagnostic(fault, "cycles or words", code="unknown-choice"))
    if faults:
        raise SpecError(faults)


def most_of(options: argparse.Namespace) -> int:
    """Return the maximum number of tiles to export."""
    return MOST if options.most is None else int(options.most)


def first_of(options: argparse.Namespace) -> str:
    """Read A from its file."""
    if options.file is None:
        message = "no file is named"
        remedy = "name operand A: a .mtx or .tns file"
        raise SpecError([Diagnostic(message, remedy, "FILE", code="missing-argument")])
    return str(options.file)


def second_of(text: str | None) -> str | Second | None:
    """Return B: read from a file, or derived from A."""
    from polymodel.api.operands import in_words

    return None if text is None else in_words(text, f"--with {text}")


def launch_of(options: argparse.Namespace) -> Launch:
    """Return the cost of launching a kernel."""
    from polymodel.tiling.cost.model import Launch

    usual = Launch()
    return Launch(
        config_add=usual.config_add if options.config is None else options.config,
        config_multiply=usual.config_multiply if options.config is None else options.config,
        run=options.which,
        clock_mhz=usual.clock_mhz if options.clock is None else options.clock,
        cycles=options.cycles,
    )
