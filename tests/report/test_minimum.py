"""Formulas of least traffic: textbook values, against sweeps; sizes that have no number."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pytest
import sympy
from scipy import optimize as scipy_optimize

import polymodel as pm
from polymodel.report.formula import factored
from polymodel.report.minimum import Minimum, minimum
from tests.faults import faults, refused

ARCH = {
    "nodes": [
        {"type": "Memory", "name": "DRAM", "tensors": {"may_keep": "All"}},
        {"type": "Memory", "name": "GLB", "tensors": {"may_keep": "All"}},
        {"type": "Compute", "name": "MAC"},
    ]
}


def storage(component: str, *tensors: str) -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": list(tensors)}


def loop(v: str, tile: str) -> dict[str, Any]:
    return {"type": "Temporal", "rank_variable": v, "tile_shape": tile}


def matmul(
    *nodes: dict[str, Any], arch: object = ARCH, bits: Mapping[str, int] = {}, **sizes: int | None
) -> pm.Spec:
    symbols = {"M": None, "N": None, "K": None, **sizes}
    ends = [{"type": "Compute", "einsum": "Z", "component": "MAC"}]
    return pm.load(
        {
            "arch": arch,
            "symbols": symbols,
            "workload": {
                "rank_sizes": {n: n for n in "MNK"},
                "bits_per_value": {**bits, "Other": 1},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "mapping": {"nodes": [storage("DRAM", "A", "B", "Z"), *nodes, *ends]},
        }
    )


OUTPUT_STAYS = (
    loop("m", "TM"), loop("n", "TN"), storage("GLB", "Z"), loop("k", "TK"), storage("GLB", "A", "B"),
)  # fmt: skip


def test_the_least_traffic_of_a_matmul_is_that_of_textbooks() -> None:
    forms = pm.closed_forms(matmul(*OUTPUT_STAYS), ranks=True)
    least = forms.minimize("accesses:DRAM", "working_set:GLB", "S")
    m, n, k = (forms.symbols[s] for s in "MNK")
    s = sympy.Symbol("S", positive=True)
    assert sympy.simplify(least.value - (m * n + 2 * m * n * k / (sympy.sqrt(s + 1) - 1))) == 0
    assert least.leading("S") == m * n + 2 * m * n * k / sympy.sqrt(s)
    assert least.at["TK"] == 1
    assert least.at["TM"] == least.at["TN"]


@pytest.mark.slow
@pytest.mark.parametrize("root", [8, 12, 24])
def test_no_tiles_that_fit_move_less_and_square_ones_just_as_much(root: int) -> None:
    """Where the best tiles are whole and divide, a sweep finds the value of the formula."""
    capacity = (root + 1) ** 2 - 1
    forms = pm.closed_forms(matmul(*OUTPUT_STAYS), ranks=True)
    least = forms.minimize("accesses:DRAM", "working_set:GLB", capacity)
    sizes = {"M": 48, "N": 24, "K": 30}
    value = int(least.value.subs({forms.symbols[n]: v for n, v in sizes.items()}))
    one = matmul(*OUTPUT_STAYS, **sizes)
    points = pm.sweep(
        one, {"TM": pm.divisors("m"), "TN": pm.divisors("n"), "TK": pm.divisors("k")}, keep="all"
    )
    frame = points.frame[points.frame["working_set:GLB"] <= capacity]
    assert (frame["reads:DRAM"] + frame["writes:DRAM"]).min() == value


def test_tile_sizes_of_the_least_traffic_of_a_convolution_are_above_0() -> None:
    """Its windows make a quadratic equation of the capacity, one of whose roots is negative."""
    sizes = dict.fromkeys("MPQC") | {"R": 3, "S": 3}
    inner = (storage("GLB", "O"), {**loop("c", "1"), "tile_shape": 1}, storage("GLB", "I", "F"))
    spec = pm.load(
        {
            "arch": ARCH,
            "symbols": sizes,
            "workload": {
                "rank_sizes": {n: n for n in sizes},
                "bits_per_value": {"All": 1},
                "einsums": ["O[m, p, q] = I[c, H=p+r, W=q+s] * F[m, c, r, s]"],
            },
            "mapping": {
                "nodes": [
                    storage("DRAM", "I", "F", "O"), loop("m", "TM"), loop("p", "TP"), *inner,
                    {"type": "Compute", "einsum": "O", "component": "MAC"},
                ]
            },
        }
    )  # fmt: skip
    forms = pm.closed_forms(spec, ranks=True)
    known = {"Q": 56, "R": 3, "S": 3}
    least = forms.at(**known).minimize("accesses:DRAM", "working_set:GLB", "Z")
    m, p, c, z = (*(forms.symbols[n] for n in "MPC"), sympy.Symbol("Z", positive=True))
    root = sympy.sqrt(56 * 3 * 3 * (56 + 3 - 1)) / sympy.sqrt(z)
    assert sympy.simplify(least.leading("Z") - (56 * m * p + 2 * c * m * p * root)) == 0
    layer = {"M": 512, "P": 10_000, "C": 256, **known, "Z": 500_000}
    numbers = {s: layer[s.name] for s in least.value.free_symbols}
    rows, maps = (float(least.at[n].subs(numbers)) for n in ("TP", "TM"))
    assert rows > 1
    assert maps > 1
    traffic, room = (
        sympy.lambdify(list("MPQCRSZ") + ["TP", "TM"], forms.assuming("divides").value(name))
        for name in ("accesses:DRAM", "working_set:GLB")
    )
    sizes = [layer[n] for n in "MPQCRSZ"]
    assert room(*sizes, rows, maps) == pytest.approx(500_000)
    assert traffic(*sizes, rows, maps) == pytest.approx(float(least.value.subs(numbers)))
    for more in (0.8, 1.25):  # as much room, other rows: more channels or fewer, and more traffic
        empty, one = (room(*sizes, rows * more, maps) for maps in (0, 1))
        other = (500_000 - empty) / (one - empty)
        assert traffic(*sizes, rows * more, other) > traffic(*sizes, rows, maps)


def test_where_more_room_saves_nothing_there_is_no_formula() -> None:
    x, s = sympy.symbols("x S", positive=True)
    with pytest.raises(pm.Refused, match="no formula was found whose tile sizes are above 0"):
        minimum(x + 4 / x, x, s, {x: (sympy.Integer(1), sympy.oo)})


def test_sizes_without_a_number_give_the_forms_of_any_number() -> None:
    forms = pm.closed_forms(matmul(*OUTPUT_STAYS), ranks=True)
    values = {"M": 10, "N": 7, "K": 9, "TM": 4, "TN": 7, "TK": 2}
    report = pm.evaluate(matmul(*OUTPUT_STAYS).bind(**values))
    there = forms.at(**values)
    for name in ("accesses:DRAM", "accesses:GLB", "working_set:GLB", "energy"):
        assert there.value(name) == report.value(name)


def test_a_chain_whose_sizes_have_no_number_loads() -> None:
    """Both Einsums lack the same size, which is told once; the second one is not called unbounded for it."""
    spec = pm.load(
        {
            "arch": ARCH,
            "symbols": {"M": None, "N": None},
            "workload": {
                "rank_sizes": {"M": "M", "N": "N"},
                "bits_per_value": {"All": 1},
                "einsums": ["T[m, n] = A[m, n] * B[n]", "Z[m] = T[m, n] * C[n]"],
            },
        }
    )
    assert spec.bind(M=3, N=4).workload["Z"].bounds == ((0, 2), (0, 3))
    with pytest.raises(pm.SpecError, match="symbol N has no value") as caught:
        pm.evaluate(spec.with_mapping(pm.LoopTree(())))
    assert "unbounded" not in str(caught.value)


CUBE = matmul(loop("m", "TM"), loop("n", "TN"), loop("k", "TK"), storage("GLB", "A", "B", "Z"))


def no_others_are_less(
    least: Minimum, objective: sympy.Expr, held: sympy.Expr, numbers: dict[str, int], capacity: str
) -> None:
    """The sizes use up the capacity, and of other sizes that do so none have less."""
    found = least.numbers(**numbers)
    sizes, room = sorted(found.at), numbers[capacity]
    values = {s: numbers[s.name] for e in (objective, held) for s in e.free_symbols if s.name in numbers}
    names = {s.name: s for s in held.free_symbols}
    traffic, taken = (sympy.lambdify([names[n] for n in sizes], e.subs(values)) for e in (objective, held))
    best = [float(found.at[n]) for n in sizes]
    assert taken(*best) == pytest.approx(room)
    assert traffic(*best) == pytest.approx(float(found.value))
    pick, tried = Random(1), 0
    while tried < 200:
        first = [size * pick.uniform(0.5, 2) for size in best[1:]]
        empty, one = taken(0, *first), taken(1, *first)  # what is held is a straight line in each size
        other = (room - empty) / (one - empty)
        tried += other > 0
        assert other <= 0 or traffic(other, *first) >= traffic(*best) * (1 - 1e-12)


@pytest.mark.slow
def test_three_sizes_that_are_multiples_of_one_another() -> None:
    """All loops of a matmul are tiled: results that are not whole leave and come back."""
    forms = pm.closed_forms(CUBE, ranks=True, assume="divides")
    least = forms.minimize("accesses:DRAM", "working_set:GLB", "S")
    assert sympy.simplify(least.at["TM"] / least.at["TN"]) == 1
    assert sympy.simplify(least.at["TK"] / least.at["TM"] - (1 + sympy.sqrt(5)) / 2) == 0
    asked = [forms.value(n) for n in ("accesses:DRAM", "working_set:GLB")]
    no_others_are_less(least, *asked, {"M": 900, "N": 800, "K": 700, "S": 5000}, "S")


def test_a_size_that_is_the_root_of_a_polynomial() -> None:
    """A convolution tiled along channels, rows and columns: 2 sqrt(RS) of each operation over sqrt(Z)."""
    sizes = dict.fromkeys("MPQC") | {"R": 3, "S": 3}
    nodes = [storage("DRAM", "I", "F", "O"), loop("m", "TM"), loop("p", "TP"), loop("q", "TQ")]
    nodes += [storage("GLB", "O"), {**loop("c", "1"), "tile_shape": 1}, storage("GLB", "I", "F")]
    spec = pm.load(
        {
            "arch": ARCH,
            "symbols": sizes,
            "workload": {
                "rank_sizes": {n: n for n in sizes},
                "bits_per_value": {"All": 1},
                "einsums": ["O[m, p, q] = I[c, H=p+r, W=q+s] * F[m, c, r, s]"],
            },
            "mapping": {"nodes": [*nodes, {"type": "Compute", "einsum": "O", "component": "MAC"}]},
        }
    )
    forms = pm.closed_forms(spec, ranks=True, assume="divides").at(R=3, S=3)
    least = forms.minimize("accesses:DRAM", "working_set:GLB", "Z")
    m, p, q, c, z = (*(forms.symbols[n] for n in "MPQC"), sympy.Symbol("Z", positive=True))
    assert list(least.roots) == ["TP"]
    assert sympy.simplify(least.leading("Z") - (6 * c * m * p * q / sympy.sqrt(z) + m * p * q)) == 0
    asked = [forms.value(n) for n in ("accesses:DRAM", "working_set:GLB")]
    no_others_are_less(least, *asked, {"M": 512, "P": 300, "Q": 300, "C": 64, "Z": 50_000}, "Z")
    with faults("unknown-name", at="Z"):
        least.numbers(M=512, P=300, Q=300, C=64)


def test_a_formula_has_no_numbers_where_it_does_not_hold() -> None:
    """A matmul of 8 x 8 x 8 cannot move fewer than its 192 elements, whatever a formula of tiles says."""
    forms = pm.closed_forms(CUBE, ranks=True, assume="divides")
    least = forms.minimize("accesses:DRAM", "working_set:GLB", "S")
    assert least.numbers(M=80, N=80, K=80, S=960).at["TM"] < 80
    whole = least.numbers(M=8, N=8, K=8, S=10_000_000)
    assert float(whole.value) == 192
    assert {int(size) for size in whole.at.values()} == {8}
    with faults("out-of-range", at=""):
        least.numbers(M=8, N=8, K=8, S=2)  # less than three elements


def attention(*nodes: Any) -> pm.SymbolicReport:
    branches = [
        {"type": "Nested", "nodes": [{"type": "Compute", "einsum": e, "component": "MAC"}]}
        for e in ("QK", "SM", "AV")
    ]
    sizes = {"M": "M", "P": "P", "E": "E", "F": "E"}
    einsums = ["QK[m, p] = Q[m, e] * K[p, e]", "SM[m, p] = QK[m, p]", "AV[m, f] = SM[m, p] * V[p, f]"]
    spec = pm.load(
        {
            "arch": ARCH,
            "symbols": {"M": None, "P": None, "E": None},
            "workload": {"rank_sizes": sizes, "bits_per_value": {"All": 1}, "einsums": einsums},
            "mapping": {"nodes": [*nodes, {"type": "Sequential", "nodes": branches}]},
        }
    )
    return pm.closed_forms(spec, ranks=True, assume="divides")


STAYING = {
    "outputs": lambda: pm.closed_forms(
        matmul(
            loop("m", "TM"), loop("n", "TN"), storage("GLB", "Z"), loop("k", "TK"), storage("GLB", "A", "B")
        ),
        ranks=True, assume="divides",
    ),
    "weights": lambda: pm.closed_forms(
        matmul(
            loop("k", "TK"), loop("n", "TN"), storage("GLB", "B"), loop("m", "TM"), storage("GLB", "A", "Z")
        ),
        ranks=True, assume="divides",
    ),
    "queries": lambda: attention(
        storage("DRAM", "Q", "K", "V", "AV"), loop("m", "TM"), storage("GLB", "Q", "AV"), loop("p", "TP"),
        storage("GLB", "K", "V", "QK", "SM"),
    ),
    "keys": lambda: attention(
        storage("DRAM", "Q", "K", "V", "AV"), loop("p", "TP"), storage("GLB", "K", "V"), loop("m", "TM"),
        storage("GLB", "Q", "AV", "QK", "SM"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("staying", STAYING)
def test_numbers_are_the_least_at_every_capacity(staying: str) -> None:
    """Beside all sizes of a grid of real numbers, each at most half of the whole or the whole: also where the
    formula does not hold, since a size lies outside its range or another peak is the largest."""
    forms = STAYING[staying]()
    objective, held = (forms.value(n) for n in ("accesses:DRAM", "working_set:GLB"))
    least = forms.minimize("accesses:DRAM", "working_set:GLB", "S")
    pick = Random(staying)
    extents = {n: pick.choice([48, 64, 96, 200]) for n in forms.symbols if not n.startswith("T")}
    tiles = sorted(least.at)
    names = {s.name: s for s in held.free_symbols | objective.free_symbols}
    known = {names[n]: size for n, size in extents.items() if n in names}
    many = 400 if len(tiles) < 3 else 60
    axes = [np.append(np.linspace(1, extents[t[1]] / 2, many), extents[t[1]]) for t in tiles]
    grids = np.meshgrid(*axes, indexing="ij")
    traffic, taken = (
        np.broadcast_to(
            sympy.lambdify([names[t] for t in tiles], e.subs(known), "numpy")(*grids), grids[0].shape
        )
        for e in (objective, held)
    )
    most = int(taken.max())
    for room in [most + 1, *(pick.randrange(int(taken.min()) + 1, most) for _ in range(5))]:
        found = least.numbers(**extents, S=room)
        there = {names[t]: found.at[t] for t in tiles} | known
        assert held.subs(there) <= room * (1 + 1e-9)
        assert float(objective.subs(there)) == pytest.approx(float(found.value))
        best = traffic[taken <= room].min()
        assert found.value <= best * (1 + 1e-9)
        assert found.value >= best * 0.97


def test_how_roots_grow_with_the_capacity() -> None:
    a, x, s = sympy.symbols("a x S", positive=True)
    least = minimum(a / x, x**3 + x, s, {x: (sympy.Integer(1), sympy.oo)})
    assert least.leading("S") == a / sympy.cbrt(s)
    assert float(least.numbers(a=6, S=10).value) == pytest.approx(3)
    exact = minimum(6 / x, x**3 + x, sympy.Integer(10), {x: (sympy.Integer(1), sympy.oo)})
    assert (exact.value, exact.roots) == (3, {})


def test_maxima_are_those_of_their_largest_argument() -> None:
    x, s = sympy.symbols("x S", positive=True)
    ends = {x: (sympy.Integer(1), sympy.oo)}
    least = minimum(1 / x, sympy.Max(x + 2, 3 * x), s, ends)
    assert (least.value, least.where) == (3 / s, ())
    held = sympy.Max(x + 2, 3 * x, 2 * x + 3)  # the last one up to 3, then the one before it
    several = minimum(1 / x, held, s, ends)
    assert (several.value, several.where) == (3 / s, (sympy.factor(s / 3 - 3),))


def test_attention_uses_up_its_buffer_at_the_phase_that_holds_most() -> None:
    """Queries stay while keys pass: no tiles that divide move less, and those of the formula just as much."""
    branches = [
        {"type": "Nested", "nodes": [{"type": "Compute", "einsum": e, "component": "MAC"}]}
        for e in ("QK", "SM", "AV")
    ]
    spec = pm.load(
        {
            "arch": ARCH,
            "symbols": {"M": None, "P": None, "E": None},
            "workload": {
                "rank_sizes": {"M": "M", "P": "P", "E": "E", "F": "E"},
                "bits_per_value": {"All": 1},
                "einsums": [
                    "QK[m, p] = Q[m, e] * K[p, e]", "SM[m, p] = QK[m, p]", "AV[m, f] = SM[m, p] * V[p, f]",
                ],
            },
            "mapping": {
                "nodes": [
                    storage("DRAM", "Q", "K", "V", "AV"), loop("m", "TM"), storage("GLB", "Q", "AV"),
                    loop("p", "TP"), storage("GLB", "K", "V", "QK", "SM"),
                    {"type": "Sequential", "nodes": branches},
                ],
            },
        }
    )  # fmt: skip
    least = pm.closed_forms(spec, ranks=True).minimize("accesses:DRAM", "working_set:GLB", "S")
    assert list(map(str, least.at.values())) == ["S/(E + F + 2)", "1"]
    found = pm.compile(spec.bind(M=64, P=64, E=4))
    sizes = [2**k for k in range(7)]
    tiles = {"TM": [m for m in sizes for _ in sizes], "TP": sizes * len(sizes)}
    points = found.arrays(tiles)
    moved = points["reads:DRAM"] + points["writes:DRAM"]
    for room in (80, 100, 160, 320):
        there = least.numbers(M=64, P=64, E=4, F=4, S=room)
        assert all(x >= 0 for x in there.where)
        best = min(moved[points["working_set:GLB"] <= room])
        assert best >= there.value
        assert (best == there.value) == (there.at["TM"] in sizes)
    numbers = {"E": 4, "F": 4, "S": 30}
    assert any(e.subs({s: numbers[s.name] for s in e.free_symbols}) < 0 for e in least.where)
    assert least.numbers(M=64, P=64, E=4, F=4, S=30).at["TM"] < sympy.Rational(30, 4 + 4 + 2)


def test_what_is_counted_of_a_triangle_has_no_formula() -> None:
    einsum = {
        "name": "Z",
        "iteration_space_shape": "n <= m",
        "tensor_accesses": [
            {"name": "A", "projection": ["m"]},
            {"name": "B", "projection": ["n"]},
            {"name": "Z", "projection": ["m", "n"], "output": True},
        ],
    }
    nodes = [storage("DRAM", "A", "B", "Z"), loop("m", "TM"), storage("GLB", "A"), loop("n", "TN")]
    nodes += [storage("GLB", "B", "Z"), {"type": "Compute", "einsum": "Z", "component": "MAC"}]
    symbols = {"M": None, "TM": None, "TN": None}
    workload = {"rank_sizes": {"M": "M", "N": "M"}, "bits_per_value": {"All": 1}, "einsums": [einsum]}
    spec = pm.load({"arch": ARCH, "workload": workload, "mapping": {"nodes": nodes}, "symbols": symbols})
    with pytest.raises(pm.NotSeparable, match=r"symbols have no closed form where (.*) is not a box"):
        pm.closed_forms(spec, ranks=True)
    with pytest.raises(pm.Refused, match=r"whole tile sizes(.|\n)*pm.compile"):
        pm.closed_forms(spec.bind(M=8)).minimize("accesses:DRAM", "working_set:GLB", "S")


def test_where_there_is_no_formula_the_remedy_is_numbers() -> None:
    forms = pm.closed_forms(CUBE, ranks=True)
    u, x, y, z, s = sympy.symbols("u x y z S", positive=True)
    ends = dict.fromkeys((u, x, y, z), (sympy.Integer(1), sympy.oo))
    with pytest.raises(pm.Refused, match=r"no formula for more than three(.|\n)*pm.compile"):
        minimum(1 / u + 2 / x + 3 / y + 4 / z, u * x + x * y + y * z + x * z, s, ends)
    with pytest.raises(pm.SpecError, match="TX is not a tile size to choose"):
        forms.minimize("accesses:DRAM", "working_set:GLB", "S", over=["TX"])
    with pytest.raises(pm.SpecError, match="nothing to choose"):
        forms.at(TM=2, TN=2, TK=2).minimize("accesses:DRAM", "working_set:GLB", "S")
    with pytest.raises(pm.Refused, match="has no derivative"):
        forms.minimize(forms.value("accesses:DRAM"), "working_set:GLB", "S")


def numeric(objective: Any, held: Any, capacity: float, symbols: list[Any]) -> float:
    """The least value by an optimiser, from tiles that fit; nothing of the derivation."""
    from scipy.optimize import minimize

    value, room = (sympy.lambdify(symbols, e) for e in (objective, held))
    fits = {"type": "ineq", "fun": lambda logs: 1 - room(*(2.0**n for n in logs)) / capacity}
    start = [1.0] * len(symbols)
    scale = value(*(2.0**n for n in start))
    found = minimize(
        lambda logs: value(*(2.0**n for n in logs)) / scale, start, constraints=fits, method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    assert room(*(2.0**n for n in found.x)) == pytest.approx(capacity)
    return float(found.fun * scale)


@pytest.mark.parametrize("pair", [(1, 5), (10, 1)])
def test_two_sizes_that_save_unequally_have_a_formula(pair: tuple[int, int]) -> None:
    """The best tiles are a product of a * b; at (10, 1) a quadratic equation's first coefficient is 0."""
    a, b, x, y, s = sympy.symbols("a b x y S", positive=True)
    ends = dict.fromkeys((x, y), (sympy.Rational(1, 2), sympy.oo))
    form, room = a / x + b / y, x * y + x + y
    least = minimum(form, room, s, ends)
    assert not least.roots
    assert sympy.simplify(least.leading("S") - 2 * sympy.sqrt(a * b) / sympy.sqrt(s)) == 0
    weights = dict(zip((a, b), pair, strict=True))
    value = least.numbers(a=pair[0], b=pair[1], S=9).value
    assert float(value) == pytest.approx(numeric(form.subs(weights), room, 9, [x, y]), rel=1e-6)


def test_three_sizes_that_save_unequally_are_roots_of_a_polynomial() -> None:
    """Cubes whose operands cost differently: t/(t+a) + t/(t+b) + t/(t+c) = 1 for the volume by hand."""
    weights = (5, 1, 2)
    x, y, z, s, t = sympy.symbols("x y z S t", positive=True)
    ends = dict.fromkeys((x, y, z), (sympy.Integer(1), sympy.oo))
    form = sum(w / n for w, n in zip(weights, (x, y, z), strict=True))
    room = x * y + y * z + x * z
    there = minimum(form, room, s, ends).numbers(S=1000)
    volume = sympy.nsolve(sum(t / (t + w) for w in weights) - 1, t, 1)
    plane = [1000 * volume / (volume + w) for w in weights]
    by_hand = [sympy.sqrt(plane[i - 1] * plane[i - 2] / plane[i]) for i in range(3)]
    assert [float(there.at[n]) for n in "xyz"] == pytest.approx([float(v) for v in by_hand])
    assert float(there.value) == pytest.approx(numeric(form, room, 1000, [x, y, z]), rel=1e-6)


def test_the_least_energy_where_operands_have_different_values() -> None:
    """Joules weigh accesses by their memory, and a value of A has three times the bits of one of B."""
    prices = [{"name": "read", "energy": 1.3e-12}, {"name": "write", "energy": 2.1e-12}]
    nodes = [{**ARCH["nodes"][0], "actions": prices}, *ARCH["nodes"][1:]]
    spec = matmul(*OUTPUT_STAYS, arch={"nodes": nodes}, bits={"A": 3})
    forms = pm.closed_forms(spec, ranks=True, assume="divides")
    least = forms.minimize("energy", "working_set:GLB", "S")
    there = least.numbers(M=4096, N=4096, K=512, S=65536)
    fixed = {forms.symbols[n]: v for n, v in {"M": 4096, "N": 4096, "K": 512, "TK": 1}.items()}
    form, room = (sympy.sympify(forms.value(n)).subs(fixed) for n in ("energy", "working_set:GLB"))
    tiles = [forms.symbols[n] for n in ("TM", "TN")]
    assert float(there.value) == pytest.approx(numeric(form, room, 65536, tiles), rel=1e-6)
    assert float(there.at["TM"]) < float(there.at["TN"])


def test_the_difference_of_two_mappings_is_one_formula() -> None:
    rows = pm.closed_forms(
        matmul(loop("m", "TM"), storage("GLB", "A"), loop("n", "TN"), storage("GLB", "B", "Z")),
        ranks=True, assume="divides",
    )  # fmt: skip
    forms = pm.closed_forms(matmul(*OUTPUT_STAYS), ranks=True, assume="divides")
    m, n, k, tn = (forms.symbols[s] for s in ("M", "N", "K", "TN"))
    assert sympy.simplify(forms.difference(rows, "accesses:DRAM") - k * m * (n - tn) / tn) == 0


MAPPINGS = {
    "results stay": OUTPUT_STAYS,
    "rows of A stay": (loop("m", "TM"), storage("GLB", "A"), loop("n", "TN"), storage("GLB", "B", "Z")),
    "tiles of B stay": (
        loop("n", "TN"), loop("k", "TK"), storage("GLB", "B"), loop("m", "TM"), storage("GLB", "A", "Z"),
    ),
}  # fmt: skip


def test_where_a_mapping_has_less_than_another() -> None:
    """The condition is true at just those sizes at which the difference is below 0."""
    every = [pm.closed_forms(matmul(*nodes), ranks=True, assume="divides") for nodes in MAPPINGS.values()]
    draw, seen = Random(5), set()
    for one, other in permutations(every, 2):
        for name in ("accesses:DRAM", "working_set:GLB"):
            less, below = one.difference(other, name), one.lower_where(other, name)
            seen.add(str(below) if below in (sympy.true, sympy.false) else "relation")
            symbols = one.symbols | other.symbols
            for _ in range(6):
                tiles = {f"T{r}": draw.choice([1, 2, 8]) for r in "MNK"}
                sizes = {**tiles, **{r: tiles[f"T{r}"] * draw.choice([1, 2, 5]) for r in "MNK"}}
                there = {symbols[n]: v for n, v in sizes.items() if n in symbols}
                assert bool(below.subs(there)) == bool(less.subs(there) < 0), (name, less, below, there)
    assert seen == {"False", "relation"}


def test_an_objective_as_a_size_grows_without_bound() -> None:
    forms = pm.closed_forms(matmul(*OUTPUT_STAYS), ranks=True)
    m, n, k, tn = (forms.symbols[s] for s in ("M", "N", "K", "TN"))
    assert forms.assuming("divides").limit("accesses:DRAM", "TM") == m * n * (k / tn + 1)
    assert forms.limit("working_set:GLB", "TM") == sympy.oo
    with faults("unknown-name", "TX", at=""):
        forms.limit("accesses:DRAM", "TX")
    with refused("unsupported-symbol"):
        forms.limit("accesses:DRAM", "TM")


def test_formulas_have_their_common_factors_taken_out() -> None:
    forms = pm.closed_forms(matmul(*OUTPUT_STAYS), ranks=True, assume="divides")
    assert str(forms.value("accesses:DRAM")) == "M*N*(K/TN + K/TM + 1)"
    assert str(forms.value("working_set:GLB")) == "TK*TM + TK*TN + TM*TN"
    a, b, x = sympy.symbols("a b x", positive=True)
    assert factored(sympy.Max(a, b)) == sympy.Max(a, b)
    assert factored(0.5 * a + 0.25 * b) == 0.5 * a + 0.25 * b
    assert str(factored(a * b / x + a + b**2 / x + b)) == "(a + b)*(b/x + 1)"
    assert str(factored(a**2 * x + a**2 - a**2 * b / x)) == "a**2*(-b/x + x + 1)"
    assert str(factored(a**2 * b / x + a**2 / x + a**2 * b)) == "a**2*(b + b/x + 1/x)"


def test_a_size_without_a_number_is_no_tile_size() -> None:
    both = matmul(loop("m", "TM"), loop("n", "N"), storage("GLB", "A", "B", "Z"))
    with pytest.raises(pm.SpecError, match="N: a workload size without a value is also a tile"):
        pm.closed_forms(both, ranks=True)


@pytest.mark.slow
def test_formulas_of_different_weights_hold_for_equal_ones() -> None:
    """Where weights are equal, their differences are 0 / 0 in the formula; SciPy's solver knows none."""
    x, y, z, a, b, c, size, most = sympy.symbols("x y z a b c S M", positive=True)
    ends = dict.fromkeys((x, y, z), (sympy.S.One, most))
    found = minimum(a / x + b / y + c / z, x * y + y * z + x * z, size, ends)
    for weights in ((2, 2, 3), (4, 2, 4)):
        numbers = dict(zip("abc", weights, strict=True))
        there = found.numbers(**numbers, S=100_000, M=10**6)
        sizes = np.array([float(there.at[s]) for s in "xyz"])

        def held(logs: Any) -> Any:
            u, v, w = np.exp(logs)
            return 1 - (u * v + v * w + u * w) / 100_000

        def value(logs: Any, weights: tuple[int, ...] = weights) -> Any:
            return (np.array(weights) / np.exp(logs)).sum()

        limit = {"type": "ineq", "fun": held}
        searched = scipy_optimize.minimize(value, np.full(3, 5.0), constraints=limit, tol=1e-12)
        assert abs(held(np.log(sizes))) < 1e-12
        assert float(there.value) == pytest.approx(searched.fun, rel=1e-8)
    with faults("unknown-name", at="M"):
        found.numbers(a=1, b=1, c=1, S=100_000)


def test_a_capacity_has_a_name_of_its_own() -> None:
    forms = pm.closed_forms(CUBE, ranks=True)
    with faults("name-conflict", "K", at=""):
        forms.minimize("accesses:DRAM", "working_set:GLB", "K")


def test_formulas_in_latex_have_one_symbol_for_each_name() -> None:
    tm, tn0, long, m = sympy.symbols("TM TN0 BATCH_SIZE M", positive=True)
    assert pm.latex(m / tm + long / tn0) == r"\frac{\mathit{BATCH\_SIZE}}{T_{N,0}} + \frac{M}{T_{M}}"


def test_extents_without_a_value_may_stay_symbols() -> None:
    with pytest.raises(pm.SpecError) as caught:
        pm.closed_forms(CUBE)
    assert {d.code for d in caught.value.diagnostics} == {"unbound-symbol"}
    assert all("ranks=True" in d.remedy for d in caught.value.diagnostics)
