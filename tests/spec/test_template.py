"""Templates: what works, where faults point, and that no template can exhaust the machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.spec.template import shares
from tests.faults import faults

WORKLOAD = """\
workload:
  rank_sizes:
    {% set BATCH = BATCH | default(1) %}
    {% set TOKENS = TOKENS | default(64) %}
    B: {{BATCH}}
    M: {{ TOKENS }}
    {% for i in range(3) %}
    N{{ i }}: {{ [4, 6, 8][i] * 2 }}
    {% endfor %}
  bits_per_value: {All: 8}
  einsums:
  {% macro matmul(i) %}
  - T{{ i + 1 }}[b, m, n{{ i + 1 }}] = T{{ i }}[b, m, n{{ i }}] * W{{ i }}[n{{ i }}, n{{ i + 1 }}]
  {% endmacro %}
  {# a comment
     over two lines #}
  {{ matmul(0) }}
  {{ matmul(1) }}
"""


def spec_file(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_set_default_loop_and_macro(tmp_path: Path) -> None:
    path = spec_file(tmp_path, WORKLOAD)
    cascade = pm.load(path, TOKENS=2048).workload
    assert [e.name for e in cascade] == ["T1", "T2"]
    assert dict(cascade.rank_sizes) == {"B": 1, "M": 2048, "N0": 8, "N1": 12, "N2": 16}
    assert pm.load(path).workload["T1"].bound("m") == (0, 63)
    assert pm.load(path, variables={"TOKENS": 5}, BATCH=2).workload["T2"].bound("b") == (0, 1)


def test_faults_point_to_the_line_of_the_file(tmp_path: Path) -> None:
    text = WORKLOAD.replace("bits_per_value: {All: 8}", "bits_per_value: {Al: 8}").replace("* W{{", "* ?W{{")
    with pytest.raises(pm.SpecError) as caught:
        pm.load(spec_file(tmp_path, text))
    lines = text.splitlines()
    found = caught.value.diagnostics
    assert {lines[d.place.line - 1].split()[0] for d in found} >= {"-"}
    for d in found:
        assert d.place.text.endswith("# as rendered from the template")
        assert d.place.text[d.place.column - 1] == "?"


def test_a_line_without_template_is_shown_as_written(tmp_path: Path) -> None:
    text = WORKLOAD.replace("bits_per_value", "bits_per_valu")
    with pytest.raises(pm.SpecError) as caught:
        pm.load(spec_file(tmp_path, text))
    place = caught.value.diagnostics[0].place
    assert place.text == text.splitlines()[place.line - 1]
    assert place.text.strip().startswith("bits_per_valu:")


def test_unused_variable(tmp_path: Path) -> None:
    with faults("unused-variable", "TOKEN", at="") as caught:
        pm.load(spec_file(tmp_path, WORKLOAD), TOKEN=3)
    assert "TOKENS" in caught.value.diagnostics[0].remedy


DAG = "{% set a = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}{% set a.x = (a.x, a.x) %}{% endfor %}"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "{% for i in range(9000) %}{% for j in range(9000) %}{% endfor %}{% endfor %}",
            marks=pytest.mark.slow,  # tests/bad/template_nested_loops.yaml is in every run
        ),
        "{% for i in range(10**12) %}{% endfor %}",
        "{{ 10**10**9 }}",
        "{{ 'x' * 10**10 }}",
        "{{ 10**10 * 'x' }}",
        "{{ [1] * 10**9 }}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=3) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(60) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ [[[1] * 1000] * 1000] * 1000 }}",
        "{{ range(1000) | join('x' * 100000) }}",
        "{{ range(10**7) | sum }}",
        "{{ 5 | round(10**9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{x:1000000000}'.format_map({'x': 1}) }}",
        "{{ '{x:1000000000}'['format_map']({'x': 1}) }}",
        "{{ 'a'.center(10**9) }}",
        "{{ 'aaaa'.replace('a', 'b' * 100000) }}",
        DAG + "{{ a.x | upper }}",
        pytest.param(DAG + "{{ {a.x: 1} }}", marks=pytest.mark.slow),
        DAG + "{{ {1: 1}[a.x] }}",
        pytest.param(DAG + "{{ {1: 1}.get(a.x) }}", marks=pytest.mark.slow),
        pytest.param(DAG + DAG.replace("a.x", "a.y") + "{{ a.x == a.y }}", marks=pytest.mark.slow),
        pytest.param(DAG + "{{ a.x in [1] }}", marks=pytest.mark.slow),
        "{{ ''.__class__ }}",
        "{{ range.__init__.__globals__ }}",
        "{{ namespace.__mro__ }}",
        "{{ self.__init__ }}",
        "{{ ().__class__.__bases__[0].__subclasses__() }}",
        "{{ (1).__add__(2) }}",
        "{{ cycler.__init__ }}",
        "{{ lipsum(n=10**9) }}",
        "{{ [1] | map('upper') }}",
        "{% include 'other.yaml' %}",
        "{% import 'other.yaml' as o %}",
        "{% from 'other.yaml' import o %}",
        "{% extends 'other.yaml' %}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% filter upper %}x{% endfilter %}",
        "{% set x %}text{% endset %}",
        "{% call f() %}{% endcall %}",
        "{{ undefined_name }}",
        "{{ 1 + }}",
        "{% for %}",
        "{{ 1 / 0 }}",
        "{{ [1][7].x }}",
        "\ue000{{ 1 }}",
    ],
)
@pytest.mark.thin(4)
def test_refused_quickly(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.yaml").write_text("workload: {einsums: []}\n", encoding="utf-8")
    path = spec_file(tmp_path, f"workload:\n  name: a\n{text}\n")
    start = time.process_time()  # of this process alone, however busy the machine is
    with pytest.raises(pm.SpecError) as caught:
        pm.load(path)
    assert time.process_time() - start < 5
    (fault,) = caught.value.diagnostics
    assert fault.message.startswith(("template", "the template"))
    assert fault.remedy


DECLARED = """\
{% variable GROUPS = 2, least=1, most=8, about="groups of heads" %}
{% variable HEADS = 4, multiple_of=GROUPS %}
{% variable PHASE = "all", among=["all", "one"] %}
{% variable SHARE = 0.5, least=0, most=1 %}{% variable SIZES = [3] %}
workload:
  rank_sizes: {H: {{ HEADS // GROUPS }}, M: {{ SIZES[0] if PHASE == "all" else 1 }}}
  bits_per_value: {All: 8}
  densities: {A: {{ SHARE }}}
  einsums:
  - Z[h, m] = A[h, m]
"""


def test_declared_variables_are_checked_and_listed(tmp_path: Path) -> None:
    path = str(spec_file(tmp_path, DECLARED))
    spec = pm.load(path, HEADS=6, PHASE="one", SHARE=1)
    assert [spec.workload["Z"].bound(v) for v in "hm"] == [(0, 2), (0, 0)]
    assert [(v.name, v.value) for v in spec.variable_declarations] == [
        ("GROUPS", 2), ("HEADS", 6), ("PHASE", "one"), ("SHARE", 1), ("SIZES", [3]),
    ]  # fmt: skip
    assert spec.variable_declarations[0].allowed() == "a whole number from 1 to 8"
    for name, value, code in (
        ("GROUPS", 0, "out-of-range"), ("GROUPS", 9, "out-of-range"), ("GROUPS", 1.5, "not-an-integer"),
        ("GROUPS", "x", "not-a-number"), ("GROUPS", True, "not-a-number"), ("SIZES", 3, "wrong-type"),
        ("HEADS", 5, "inconsistent-values"), ("PHASE", "sideways", "unknown-choice"),
        ("SHARE", float("nan"), "out-of-range"),
    ):  # fmt: skip
        with faults(code, at=f"variables.{name}"):
            pm.load(path, **{name: value})
    with faults("inconsistent-values", at="variables.HEADS"):  # 4 unless given
        pm.load(path, GROUPS=3)
    with pytest.raises(pm.SpecError) as caught:
        pm.load(path, PHASE="on", HEADS=0.5)
    told = [(d.path, d.place.line) for d in caught.value.diagnostics]
    assert told == [("variables.HEADS", 2), ("variables.PHASE", 3)]
    assert "did you mean one?" in str(caught.value)
    with pytest.raises(pm.SpecError) as caught:  # a misspelt name is told beside a value that is refused
        pm.load(path, PHASE="on", HAEDS=4)
    assert [d.code for d in caught.value.diagnostics] == ["unknown-choice", "unused-variable"]
    held = '{% variable N = 3 %}\n{% assert N > 3, "N is above 3" %}\n'
    with faults("assertion-failed", at="variables.N"):
        pm.load(str(spec_file(tmp_path, held + DECLARED)))
    with faults("syntax-error", at=""):
        pm.load(str(spec_file(tmp_path, "{% variable N = 3, larger=2 %}\n" + DECLARED)))


@pytest.mark.parametrize(
    ("total", "parts", "skew", "most"), [(16, 8, 1.0, 8), (17, 8, 0.0, 8), (5, 3, 2.0, 2), (90, 9, 8.0, 10)]
)
def test_shares_are_whole_and_follow_the_law(total: int, parts: int, skew: float, most: int) -> None:
    found = shares(total, parts, skew, most)
    assert sum(found) == min(total, parts * most)
    assert found == sorted(found, reverse=True)
    assert max(found) <= most
    law = [(i + 1.0) ** -skew for i in range(parts)]
    held = [i for i, n in enumerate(found) if n < most]
    left = total - sum(found[i] for i in range(parts) if i not in held)
    assert all(abs(found[i] - left * law[i] / sum(law[k] for k in held)) < 1 for i in held)
