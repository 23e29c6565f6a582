"""The counts of the design space: the published estimate's figures, and listing the choices."""

from __future__ import annotations

from itertools import combinations, permutations, product
from math import prod

import pytest

import polymodel as pm
from polymodel.slopes.design_space import (
    LinkSpace,
    divisor_count,
    factor_subsets,
    factorizations,
    intra_layer,
    ways_to_reach,
)
from tests.faults import faults


def chain(*extents: int) -> pm.Spec:
    """Matrix products in a row: M and the widths between them."""
    m, *widths = extents
    einsums = [
        f"T{i + 1}[m, n{i + 1}] = T{i}[m, n{i}] * W{i}[n{i}, n{i + 1}]" for i in range(len(widths) - 1)
    ]
    sizes = {"M": m, **{f"N{i}": n for i, n in enumerate(widths)}}
    workload = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": einsums}
    return pm.load({"schema_version": 1, "workload": workload})


def test_the_published_figures() -> None:
    """Two fused ranks of power-of-two size up to 2048: 12 x 12 sizes, 2 permutations, 4 choices to fuse; a
    size of 2048 reaches 1024 in 11 of the 2^11 subsets of its factors."""
    found = pm.design_space(chain(2048, 64, 2048, 64))
    link = found[found["kind"] == "link"].iloc[0]
    assert (link["fuse"], link["permute"], link["sizes"]) == (4, 2, 12 * 12)
    assert link["factor_subsets"] == 2**22
    assert divisor_count(2048) == 12
    assert factor_subsets(2048) == 2**11
    assert ways_to_reach(2048, 1024) == 11
    assert sum(ways_to_reach(2048, 2**i) for i in range(12)) == 2**11


def test_choices_multiply_along_a_chain() -> None:
    found = pm.design_space(chain(256, 64, 128, 64, 1)).set_index("kind")
    total = found.loc["total"]
    # The second intermediate has two ranks, too; the last Einsum's output has but one left and is not a link.
    assert (total["fuse"], total["permute"]) == (4**2, 2**2)
    assert total["sizes"] == 9 * 8
    assert total["intra_layer"] == found.loc["einsum", "intra_layer"].sum()
    assert total["mappings"] == 16 * 4 * 72 * total["intra_layer"]
    vectors = pm.design_space(pm.load("matvec_chain")).set_index("kind")
    assert vectors.loc["total", "fuse"] in (2, 4)


@pytest.mark.parametrize("sizes", [(6,), (4, 6), (2, 3, 12)])
def test_nests_are_those_that_can_be_listed(sizes: tuple[int, ...]) -> None:
    ranks = tuple((f"R{i}", size) for i, size in enumerate(sizes))
    listed = {("back",), ("held",)}
    for n in range(1, len(ranks) + 1):
        for some in combinations(ranks, n):
            for order in permutations(some):
                for bounds in product(*([d for d in range(2, s + 1) if s % d == 0] for _, s in order)):
                    listed.add(tuple(zip((r for r, _ in order), bounds, strict=True)))
    link = LinkSpace("T", "E", "F", ranks)
    assert link.nests == len(listed)


@pytest.mark.parametrize("levels", [2, 3])
def test_mappings_within_an_einsum_are_those_that_can_be_listed(levels: int) -> None:
    one = chain(6, 4, 3).workload.einsums[0]
    sizes = (6, 4, 3)
    for size in sizes:
        assert factorizations(size, levels) == sum(
            prod(f) == size for f in product(range(1, size + 1), repeat=levels)
        )
    tilings = prod(factorizations(s, levels) for s in sizes)
    orders = len(list(permutations("mkn"))) ** levels
    assert intra_layer(one, levels) == tilings * orders * 2 ** (3 * (levels - 1))


def test_graphs_have_a_row_per_consumer() -> None:
    found = pm.design_space(pm.load("gpt3_6.7B"))
    names = found[found["kind"] == "link"]["name"].tolist()
    assert {"I: I -> V", "I: I -> K", "I: I -> Q"} <= set(names)
    assert (found["kind"] == "einsum").sum() == 10
    assert found.attrs["levels"] == 2
    deeper = pm.design_space(pm.load("gpt3_6.7B"), levels=3)
    assert deeper["intra_layer"].iloc[-1] > found["intra_layer"].iloc[-1]


def test_too_few_levels_are_told() -> None:
    with faults("wrong-type", at="levels"):
        pm.design_space(chain(4, 4, 4), levels=1)
    with pytest.raises(pm.SpecError):
        pm.design_space("matmul")  # type: ignore[arg-type]  # no spec
