"""Space-time activity as a page that steps through it: fibertrees beside each other, active coordinates lit.

Self-contained: no address in it is fetched, its policy allows no script but its own, and without scripts it
shows all steps as the grid and in words. Only numbers reach the script, as attributes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.report.activity import LIMIT, Activities, allowed
from polymodel.report.drawing import picture
from polymodel.report.fibertree_layout import Coordinate, Levels, Path, levels
from polymodel.report.page import CSS
from polymodel.report.picture import Page
from polymodel.report.svg_activity import grid
from polymodel.report.svg_fibertree import Drawable, Tree, fibertree, ranks_of

# Of a larger tensor only what is touched is drawn.
WHOLE = 150
LOOKS = """
:root{color-scheme:light dark;--page:#fff;--line:#e4e7eb;--lit:#fff3bf}
body{margin:1.2em;background:var(--page)}
.trees{display:flex;flex-wrap:wrap;gap:14px;align-items:flex-start;margin:.6em 0}
.trees figure{margin:0;background:#fff;border:1px solid var(--line);border-radius:4px;
overflow-x:auto;max-width:100%}
.bar{display:flex;flex-wrap:wrap;gap:8px;align-items:center;padding:6px 0;
position:sticky;top:0;background:var(--page);border-bottom:1px solid var(--line);z-index:1}
.bar[hidden]{display:none}
.bar button{font:inherit;padding:3px 12px;min-width:3.2em}
.bar input{flex:1 1 220px;max-width:520px}
.bar output{font-variant-numeric:tabular-nums;min-width:8em}
.now{margin:0;flex-basis:100%}
g.cell>rect{transition:fill .12s}
.live g.cell.on>rect{fill:#ffd43b;stroke:#7d4a00;stroke-width:2.2}
.live g.later{opacity:.22}
.live g.head.on>text{fill:#a63d00;font-weight:bold}
ol.steps li.on{background:var(--lit)}
@media (prefers-color-scheme:dark){:root{--page:#15191e;--line:#3e4c59;--lit:#5c4400}
body.pm{color:#e4e7eb}body.pm .note{color:#aab4c0}}
@media (prefers-reduced-motion:reduce){g.cell>rect{transition:none}}
"""
# Shown text comes from the page itself (textContent), never from strings of the script.
SCRIPT = """
'use strict';
document.querySelectorAll('section.run').forEach(function (run) {
  var one = function (name) { return run.querySelector(name); };
  var bar = one('.bar'), range = one('input'), out = one('output'), now = one('.now'), play = one('.play');
  var parts = Array.from(run.querySelectorAll('[data-steps]')).map(function (part) {
    var steps = part.getAttribute('data-steps').split(' ').map(Number);
    return {part: part, steps: new Set(steps), made: part.hasAttribute('data-made') ? steps[0] : -1};
  });
  var words = Array.from(run.querySelectorAll('ol.steps li'));
  var last = Number(range.max), timer = null;
  function show() {
    var at = Number(range.value);
    parts.forEach(function (p) {
      p.part.classList.toggle('on', p.steps.has(at));
      p.part.classList.toggle('later', p.made > at);
    });
    words.forEach(function (li, number) { li.classList.toggle('on', number === at); });
    out.textContent = 'step ' + (at + 1) + ' of ' + (last + 1);
    now.textContent = words[at] ? words[at].firstChild.textContent : '';
  }
  function go(to) { range.value = Math.max(0, Math.min(last, to)); show(); }
  function stop() { clearInterval(timer); timer = null; play.textContent = 'Play'; }
  function start() {
    if (Number(range.value) >= last) { go(0); }
    play.textContent = 'Pause';
    timer = setInterval(function () {
      if (Number(range.value) >= last) { stop(); } else { go(Number(range.value) + 1); }
    }, 900);
  }
  range.addEventListener('input', show);
  play.addEventListener('click', function () { if (timer === null) { start(); } else { stop(); } });
  one('.back').addEventListener('click', function () { stop(); go(Number(range.value) - 1); });
  one('.next').addEventListener('click', function () { stop(); go(Number(range.value) + 1); });
  run.addEventListener('keydown', function (event) {
    var at = Number(range.value), moves = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last};
    if (event.target === range || event.target.hasAttribute('tabindex') || !(event.key in moves)) { return; }
    event.preventDefault();
    stop();
    go(moves[event.key]);
  });
  bar.hidden = false;
  run.classList.add('live');
  show();
});
"""


def activity_page(
    runs: Activities | Sequence[Activities],
    tensors: Mapping[str, Drawable] | Sequence[Mapping[str, Drawable]] = (),
    *,
    title: str = "",
    limit: int = LIMIT,
) -> Page:
    """A page with a section per Einsum: controls, the fibertrees of its tensors, and all steps as a grid.

    `tensors`: by name, in the ranks in which the computes name their points, for all Einsums or one such
    mapping per Einsum; of a tensor that is not given the points touched are drawn, each with the number of
    computes that touch it. Refused above `limit` computes in an Einsum; SpecError where a tensor and the
    points disagree.
    """
    listed = (runs,) if isinstance(runs, Activities) else tuple(runs)
    if not listed:
        raise SpecError([Diagnostic("there is no Einsum to show", "give the activities of at least one")])
    given = [tensors] * len(listed) if isinstance(tensors, Mapping) else list(tensors)
    if given and len(given) != len(listed):
        what = f"{len(given)} mappings of tensors for {len(listed)} Einsums"
        raise SpecError([Diagnostic(what, "give one for all, or one each")])
    pairs = list(zip(listed, given or [{}] * len(listed), strict=True))
    for run in listed:
        allowed(run, limit)
    faults = [f for run, known in pairs for f in _misfits(run, known)]
    if faults:
        raise SpecError(faults)
    name = title or f"Activity of {', '.join(r.einsum for r in listed)}"
    body = "\n".join(_section(run, known, number) for number, (run, known) in enumerate(pairs))
    return Page(name, _document(name, body))


def _document(title: str, body: str) -> str:
    allowed_script = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed_script}'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}{LOOKS}</style></head>\n"
        f'<body class="pm"><h1>{escape(title)}</h1>\n{body}\n<script>{SCRIPT}</script></body></html>\n'
    )


def _misfits(run: Activities, tensors: Mapping[str, Drawable]) -> list[Diagnostic]:
    """A fault per tensor whose points do not have one coordinate per rank, or that has no such points."""
    found = []
    for name, points in _touched(run).items():
        lengths = {len(p) for p in points}
        wanted = {len(levels(tensors[name]).ranks)} if name in tensors else set(list(lengths)[:1])
        if lengths != wanted:
            found.append(
                Diagnostic(
                    f"{run.einsum}: points of {name} have {sorted(lengths)} coordinates, the tensor has "
                    f"{sorted(wanted)} ranks",
                    "give the tensor in the ranks in which it is iterated",
                )
            )
    return found


def _touched(run: Activities) -> dict[str, dict[Path, list[int]]]:
    """Per tensor and point the steps at which it is touched, in order."""
    found: dict[str, dict[Path, list[int]]] = {name: {} for name in run.tensors}
    for compute, step in zip(run.computes, run.steps, strict=True):
        for name, path in compute.points:
            found[name].setdefault(path, []).append(step)
    return found


def _section(run: Activities, tensors: Mapping[str, Drawable], number: int) -> str:
    body, width, height = grid(run)
    drawn = picture(width, height, f"Einsum {run.einsum}: all steps", body)
    touched = _touched(run)
    shown = {name: _shown(name, points, tensors) for name, points in touched.items()}
    ranks = ranks_of(list(shown.values()))
    trees = "\n".join(
        f'<figure tabindex="0" aria-label="{escape(name)}">'
        f"{_tree(name, shown[name], points, ranks, run)}</figure>"
        for name, points in touched.items()
    )
    label = escape(run.einsum)
    last = max(run.count - 1, 0)
    return (
        f'<section class="run" aria-labelledby="run{number}">\n<h2 id="run{number}">Einsum {label}</h2>\n'
        + f'<p class="note">{"<br>".join(escape(words) for words in run.caption)}</p>'
        + '<div class="bar" role="group" aria-label="Steps" hidden>'
        '<button type="button" class="back" aria-label="Step back">&#9664;</button>'
        '<button type="button" class="play">Play</button>'
        '<button type="button" class="next" aria-label="Step forward">&#9654;</button>'
        f'<input type="range" min="0" max="{last}" value="0" step="1" aria-label="Step of {label}">'
        '<output aria-live="off"></output><p class="now" aria-live="polite"></p></div>\n'
        f'<div class="trees">\n{trees}\n</div>\n<h3>All steps</h3>\n'
        f'<div class="wide" tabindex="0" role="group" aria-label="All steps of {label}">{drawn}</div>\n'
        f"<details><summary>In words</summary>{_words(run)}</details>\n</section>"
    )


def _words(run: Activities) -> str:
    """A list of what is computed at each step, under a heading that the controls show too."""
    lines: list[list[str]] = [[] for _ in range(run.count)]
    for compute, step in zip(run.computes, run.steps, strict=True):
        where = ",".join(str(s) for s in compute.space)
        lines[step].append(f"({where}): {', '.join(compute.label)}")
    items = []
    for step, words in enumerate(lines):
        busy = len({a.space for a, s in zip(run.computes, run.steps, strict=True) if s == step})
        stamp = "" if run.slip else f", time {','.join(str(t) for t in run.times[step])}"
        many = f"{len(words)} compute{'' if len(words) == 1 else 's'}"
        head = f"{many} on {busy} of {len(run.spaces)} space points"
        items.append(f"<li><b>{escape(head + stamp)}</b><br>{escape('; '.join(words))}</li>")
    return f'<ol class="steps">{"".join(items)}</ol>'


def _tree(
    name: str, tensor: Levels, points: Mapping[Path, Sequence[int]], ranks: Sequence[str], run: Activities
) -> str:
    """The fibertree of one tensor; each coordinate says at which steps it is touched."""
    steps: dict[Path, set[int]] = {}
    for path, at in points.items():
        for deep in range(1, len(path) + 1):
            steps.setdefault(path[:deep], set()).update(at)
    made = ' data-made=""' if name == run.computes[-1].points[-1][0] else ""

    def attributes(path: Path) -> str:
        at = " ".join(str(s) for s in sorted(steps.get(path, ())))
        return f' data-steps="{at}"{made}' if at else ""

    tree = fibertree(tensor, limit=max(1, tensor.values.size), ranks=ranks, attributes=attributes)
    return _standing(tree)


def _standing(tree: Tree) -> str:
    margin = 10.0
    body = [f"<desc>{escape(tree.description)}</desc>", f'<g transform="translate({margin:g} {margin:g})">']
    return picture(tree.width + 2 * margin, tree.height + 2 * margin, tree.title, [*body, *tree.body, "</g>"])


def _shown(name: str, points: Mapping[Path, Sequence[int]], tensors: Mapping[str, Drawable]) -> Levels:
    """The tensor that is drawn: the whole, what is touched of a large one, or the points alone."""
    if name not in tensors:
        some = next(iter(points))
        counts = np.array([len(at) for at in points.values()])
        widths = tuple(len(c) if isinstance(c, tuple) else 1 for c in some)
        ranks = tuple(f"rank {k + 1}" for k in range(len(some)))
        rows = np.array([_flat(p) for p in points], dtype=np.int64).reshape(len(points), sum(widths)).T
        return levels(Levels(name, ranks, widths, rows, counts, "the number of computes at each point"))
    found = levels(tensors[name])
    if found.values.size <= WHOLE:
        return found
    flat = {_flat(p) for p in points}
    kept = np.array([tuple(c) in flat for c in found.columns.T.tolist()], dtype=bool)
    note = f"{found.note}; only what is touched of {found.values.size:,} nonzeros"
    return Levels(found.name, found.ranks, found.widths, found.columns[:, kept], found.values[kept], note)


def _flat(path: Sequence[Coordinate]) -> tuple[int, ...]:
    return tuple(n for c in path for n in (c if isinstance(c, tuple) else (c,)))
