"""Every bound that keeps a file from exhausting time or memory: fine at it, told just beyond it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.spec import yaml_text
from polymodel.spec.energy import MAX_TABLE
from polymodel.spec.expressions import MAX_DEPTH as EXPRESSION_DEPTH
from polymodel.spec.expressions import MAX_LENGTH
from polymodel.spec.faults import MAX_FAULTS, Source
from polymodel.spec.files import MAX_FILE
from polymodel.spec.template import MAX_OUTPUT, render
from polymodel.spec.yaml_text import MAX_DEPTH, MAX_NODES, parse_yaml
from tests.faults import faults

HEAD = "workload: {rank_sizes: {M: 4}, bits_per_value: {All: 8}, einsums: ['Y[m] = X[m]']}\n"


def messages(text: str) -> list[str]:
    return [d.message for d in parse_yaml(text, Source("t.yaml", tuple(text.split("\n"))))[1]]


def loaded(tmp_path: Path, text: str) -> pm.SpecError | None:
    file = tmp_path / "s.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        pm.load(file)
    except pm.SpecError as error:
        return error
    return None


def test_depth_of_a_document() -> None:
    assert not messages("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 100_000):  # libyaml itself would end the process
        assert messages("[" * depth + "]" * depth) == ["the document is nested too deeply"]


@pytest.fixture(params=[2000, pytest.param(MAX_NODES, marks=pytest.mark.slow)])
def most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many values a document may have: the same bound, and where it really is."""
    monkeypatch.setattr(yaml_text, "MAX_NODES", request.param)
    return int(request.param)


def test_values_of_a_document(most: int) -> None:
    assert not messages("- a\n" * (most - 1))
    assert messages("- a\n" * (2 * most)) == [f"the document has more than {most} values"]


def test_values_of_aliases(most: int) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert not messages("\n".join(lines[:3]))
    assert messages("\n".join(lines)) == [f"the document expands to more than {most} values"]


def test_bytes_of_a_document(tmp_path: Path) -> None:
    comment = "#" * (MAX_FILE - len(HEAD) - 1)
    assert loaded(tmp_path, f"{HEAD}{comment}\n") is None
    found = loaded(tmp_path, f"{HEAD}{comment}#\n")
    assert found is not None
    assert f"the file has {MAX_FILE + 1} bytes" in str(found)


def test_faults_of_a_document(tmp_path: Path) -> None:
    """All are told, unless they are so many that no one reads them."""
    for count, told in ((MAX_FAULTS, MAX_FAULTS), (MAX_FAULTS + 1, MAX_FAULTS + 1), (5_000, MAX_FAULTS + 1)):
        found = loaded(tmp_path, "x-a: 1\n" * (count + 1))
        assert found is not None
        assert len(found.diagnostics) == told
        assert ("the rest is not listed" in str(found)) == (count > MAX_FAULTS)
    keys = "".join(f"  k{i}: 1\n" for i in range(5_000))
    found = loaded(tmp_path, f"workload:\n{keys}")
    assert found is not None
    assert len(found.diagnostics) <= MAX_FAULTS + 1
    assert "the rest is not listed" in found.diagnostics[-1].message


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("1" + " " * (MAX_LENGTH - 1), True),
        ("1" + " " * MAX_LENGTH, False),
        ("(" * (EXPRESSION_DEPTH - 1) + "1" + ")" * (EXPRESSION_DEPTH - 1), True),
        ("(" * EXPRESSION_DEPTH + "1" + ")" * EXPRESSION_DEPTH, False),
        ("2 ** 199", True),
        ("2 ** 200", False),
        ("9" * 40, True),
        ("9" * 41, False),
    ],
)
def test_expressions(text: str, fine: bool) -> None:
    from polymodel.spec.numbers import evaluate_number

    if fine:
        assert evaluate_number(text) > 0
        return
    with pytest.raises(pm.SpecError, match=r"characters|nested too deeply|too large|too long") as caught:
        evaluate_number(text)
    assert caught.value.diagnostics[0].remedy


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ 'ab' * 400000 }}", ""),
        ("{{ 'ab' * 1100000 }}", "too much work"),
        ("{% for i in range(190000) %}x{% endfor %}", ""),
        ("{% for i in range(3000000) %}x{% endfor %}", "too long"),
        ("{% for i in range(2000) %}{% for j in range(2000) %}{% endfor %}{% endfor %}", "too much work"),
        ("{{ 10 ** 59 }}", ""),
        ("{{ 10 ** 60 }}", "too large"),
        ("{{ 9 ** 99 }}", "too large"),
        ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "without end"),
        ("{% set x = [1] %}{% for i in range(40) %}{% set x = x + x %}{% endfor %}", ""),
        (
            "{% set n = namespace(x=[1]) %}{% for i in range(40) %}{% set n.x = n.x + n.x %}{% endfor %}",
            "work",
        ),
        ("{% for i in range(9) recursive %}{{ loop([1]) }}{% endfor %}", "recursive"),
        ("{% include '/etc/passwd' %}", "include"),
        ("{{ ''.__class__.__mro__ }}", "unsafe|attribute|undefined|not available"),
    ],
)
def test_templates(text: str, why: str) -> None:
    rendered, found = render(text, Source("t.yaml", (text,)), {})
    if not why:
        assert rendered is not None
        assert not found
        return
    assert rendered is None
    assert re.search(why, found[0].message), found[0].message
    assert found[0].remedy


def test_output_of_a_template() -> None:
    text = "{{ 1 }}" + "x" * (MAX_OUTPUT - 1)
    assert render(text, Source("t.yaml", (text,)), {})[0] is not None
    rendered, found = render(f"{text}x", Source("t.yaml", (text,)), {})
    assert rendered is None
    assert "writes too much text" in found[0].message


def test_bytes_of_an_energy_table(tmp_path: Path) -> None:
    rows = "component,quantity,value\nDRAM,read,1e-12\n"
    from polymodel.spec.energy import EnergyRequest, ask

    request = EnergyRequest("DRAM", ("read",), file="e.csv", folder=str(tmp_path))
    (tmp_path / "e.csv").write_text(rows + "#" * (MAX_TABLE - len(rows)), encoding="utf-8")
    assert ask("table", request).values == {"read": 1e-12}
    (tmp_path / "e.csv").write_text(rows + "#" * (MAX_TABLE - len(rows) + 1), encoding="utf-8")
    with faults("too-large", at=""):
        ask("table", request)
