"""Published models have the parameters and operations that were published of them."""

from __future__ import annotations

import pytest

import polymodel as pm
from polymodel.spec.files import models, names
from tests.faults import faults
from tests.library import page
from tests.library.figures import macs, parameters
from tests.library.published import PUBLISHED, as_printed


def test_every_model_has_published_figures() -> None:
    assert set(PUBLISHED) == set(models())


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.thin(99)
def test_figures_are_those_published(model: str) -> None:
    figures = PUBLISHED[model]
    whole = sum(parameters(pm.load(model).workload).values()) + sum(figures.beside.values())
    assert as_printed(whole, figures.parameters) == figures.parameters
    cascade = pm.load(model, **figures.variables).workload
    assert as_printed(macs(cascade), figures.macs) == figures.macs
    assert figures.parameters_in
    assert figures.macs_in


def test_rounding_as_printed() -> None:
    assert as_printed(8_030_261_248, "8.03 G") == "8.03 G"
    assert as_printed(174_604_000_000, "174,600 M") == "174,600 M"
    assert as_printed(1234, "9") == "1,234"


def test_a_value_given_by_hand_goes_before_the_models() -> None:
    assert pm.load("llama3_8b", LAYERS=1).workload["Q"].n_instances == 1
    assert pm.load("llama3_8b").workload["Q"].n_instances == 32
    with faults("unused-variable", "LAYER", at=""):
        pm.load("llama3_8b", LAYER=1)


def test_the_page_has_every_name() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert [n for n in names() if f"| `{n}` |" not in text] == []


@pytest.mark.slow
def test_the_page_lists_what_is_there() -> None:
    assert page.main(["--check"]) == 0, "python -m tests.library.page writes it anew"
