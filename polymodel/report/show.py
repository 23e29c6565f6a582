"""A spec in text and pictures, before anything is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polymodel.architecture.hierarchy import Hierarchy, hierarchy_text, sources_text
from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.loading.typos import likely_typos
from polymodel.mapping.looptree import LoopTree, looptree_text
from polymodel.report.svg import architecture_svg, looptree_svg
from polymodel.report.svg_cascade import cascade_svg
from polymodel.spec.files import Variable, write_text
from polymodel.view.answer import Block, Code, Line, Picture
from polymodel.workload.einsum import Cascade, cascade_text, passes, values_text
from polymodel.workload.totals import totals

LONGEST = 40  # characters of a list; of a longer one its length is told
PASSES = 3  # of several numbers of passes so many are told, the largest first
PICTURES = "cascade.svg", "architecture.svg", "looptree.svg"


def show_text(
    workload: Cascade | None,
    arch: Hierarchy | None,
    mapping: LoopTree | None,
    variables: Sequence[Variable] = (),
) -> str:
    """The parts of the spec as text, one below the other, and the declarations of template variables."""
    parts = []
    if workload is not None:
        parts.append(f"workload {workload.name}".rstrip() + "\n" + _indented(_workload(workload)))
    if arch is not None:
        parts.append(f"architecture {arch.name}".rstrip() + "\n" + _indented(_architecture(arch)))
    if mapping is not None:
        parts.append(f"mapping {mapping.name}".rstrip() + "\n" + _indented(looptree_text(mapping, workload)))
    if variables:
        parts.append("template variables\n" + _indented(_variables(variables)))
    return "\n".join(parts)


def _variables(variables: Sequence[Variable]) -> str:
    """Return one line per variable: its value, its description, and the other values that it may have."""
    given = [f"{v.name} = {_value(v.value)}" for v in variables]
    wide = max(map(len, given))
    told = [
        f"{v.about} ({v.allowed()})" if v.about and v.allowed() else v.about or v.allowed() for v in variables
    ]
    return "".join(f"{g:{wide}}  {t}".rstrip() + "\n" for g, t in zip(given, told, strict=True))


def _value(value: object) -> str:
    text = str(value)
    return f"({len(value)} entries)" if isinstance(value, list) and len(text) > LONGEST else text


def _workload(workload: Cascade) -> str:
    told = "".join(f"note: {remark}\n" for remark in likely_typos(workload))
    return cascade_text(workload) + values_text(workload) + totals(workload).text() + _passes(workload) + told


def _passes(workload: Cascade) -> str:
    """Return the inputs that have to be read more than once along a rank, whatever the mapping; empty if
    there are none."""
    several: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for p in passes(workload):
        if p.passes > 1:
            pairs = zip(p.begun_by, p.over, strict=True)
            begun = tuple(f"{name} (over {read})" if read else name for name, read in pairs)
            several.setdefault((p.passes, begun), []).append(f"{p.tensor} along {p.rank}")
    shown = sorted(several.items(), key=lambda item: -item[0][0])
    lines = [
        f"at least {count} passes over {', '.join(walked[:4])}{' and others' if len(walked) > 4 else ''}, "
        f"or over what is made of it: one begins in each of {', '.join(begun)}\n"
        for (count, begun), walked in shown[:PASSES]
    ]
    return "".join(lines)


def _architecture(arch: Hierarchy) -> str:
    return hierarchy_text(arch) + sources_text(arch)


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def show_html(
    workload: Cascade | None,
    arch: Hierarchy | None,
    mapping: LoopTree | None,
    variables: Sequence[Variable] = (),
    whole: str = "",
) -> str:
    """Return the same as one self-contained page with pictures; `whole`: a text on the whole spec at the
    top."""
    from polymodel.view.html import page

    blocks: list[Block] = [Code(whole)] if whole else []
    if workload is not None:
        blocks += [Line("Cascade", "title"), Picture("Cascade", cascade_svg(workload))]
        blocks += [Line("Workload", "title"), Code(_workload(workload))]
    if arch is not None:
        blocks += [Line("Architecture", "title"), Picture("Architecture", architecture_svg(arch))]
        blocks.append(Code(_architecture(arch)))
    if mapping is not None:
        blocks += [Line("LoopTree", "title"), Picture("LoopTree", looptree_svg(mapping, workload))]
    if variables:
        blocks += [Line("Template variables", "title"), Code(_variables(variables))]
    return page("polymodel spec", blocks)


def show_pictures(
    folder: Path, workload: Cascade | None, arch: Hierarchy | None, mapping: LoopTree | None
) -> tuple[Path, ...]:
    """Write cascade.svg, architecture.svg and looptree.svg to `folder`, which is created if it is missing."""
    result = []
    of_cascade, of_arch, of_mapping = (folder / name for name in PICTURES)
    if workload is not None:
        result.append((of_cascade, cascade_svg(workload)))
    if arch is not None:
        result.append((of_arch, architecture_svg(arch)))
    if mapping is not None:
        result.append((of_mapping, looptree_svg(mapping, workload)))
    if not result:
        what = f"{folder}: nothing to draw: no workload, architecture or mapping is complete"
        remedy = "leave out --out; parts that need data are shown as text"
        raise SpecError([Diagnostic(what, remedy, code="nothing-to-show")])
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in result:
            write_text(file, text)
    return tuple(file for file, _ in result)
