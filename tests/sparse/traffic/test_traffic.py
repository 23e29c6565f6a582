"""Traffic as worked out over arrays is that of the slow enumerator, and that of the reference runs."""

from __future__ import annotations

from random import Random
from typing import Literal

import pytest
import yaml

from polymodel.sparse.traffic import traffic
from polymodel.spec.teaal import read_teaal
from tests.seeds import seeds
from tests.sparse.traffic import data
from tests.sparse.traffic.oracle import metrics
from tests.sparse.traffic.specs import DECLARED, as_cache, random_points, random_spec


def both(text: str, symbols: dict, sizes: dict, given: dict, walked: dict | None, ours: dict | None) -> tuple:
    """Our numbers and the enumerator's."""
    spec = read_teaal(text)
    tensors = {t: data.tensor(t, spec.declaration[t], sizes, p) for t, p in given.items()}
    found = traffic(spec, tensors, symbols=symbols, walked=ours).metrics()
    return found, metrics(data.plain(text), symbols, given, sizes, walked)


@pytest.mark.parametrize("seed", seeds(20, range(80)))
@pytest.mark.thin(5)
def test_random_specs(seed: int) -> None:
    spec, sizes, walked = random_spec(seed)
    rng = Random(seed)
    density = rng.choice([0.1, 0.3, 0.6, 1.0])
    given = {t: random_points(rng, [sizes[r] for r in DECLARED[t]], density) for t in "AB"}
    ours, slow = both(yaml.safe_dump(spec), {}, sizes, given, walked, walked)
    assert ours == slow


@pytest.mark.parametrize("replacement", ["lru", "optimal"])
@pytest.mark.parametrize("seed", seeds(12, range(50)))
@pytest.mark.thin(5)
def test_full_caches(seed: int, replacement: Literal["lru", "optimal"]) -> None:
    """Inputs, with the output or without it, share a small cache, in the order of the loops."""
    spec, sizes, walked = random_spec(seed)
    rng = Random(seed)
    as_cache(spec, rng.choice([1, 2, 3, 5, 8, 1000]), rng.choice(["AB", "ABZ", "Z"]))
    given = {t: random_points(rng, [sizes[r] for r in DECLARED[t]], rng.choice([0.3, 0.8])) for t in "AB"}
    text = yaml.safe_dump(spec)
    tensors = {t: data.tensor(t, DECLARED[t], sizes, p) for t, p in given.items()}
    found = traffic(read_teaal(text), tensors, walked=walked, replacement=replacement).metrics()
    assert found == metrics(data.plain(text), {}, given, sizes, walked, replacement)


@pytest.mark.parametrize("seed", seeds(4, range(60)))
@pytest.mark.parametrize("factors", ["A[k, m] * A[k, m] * B[k, n]", "A[k, m] * B[k, n] * A[k, m]"])
def test_a_tensor_that_is_read_twice(factors: str, seed: int) -> None:
    """Its lines are fetched once for both reads; where no tensor leads. Caches see both."""
    spec, sizes, walked = random_spec(seed)
    rng = Random(seed)
    spec["einsum"]["expressions"] = [f"Z[m, n] = {factors}"]
    spec["bindings"]["Z"] = [b for b in spec["bindings"]["Z"] if not str(b.get("component")).startswith("IK")]
    if rng.random() < 0.5:
        as_cache(spec, rng.choice([1, 2, 3, 5, 8]), rng.choice(["AB", "ABZ", "A"]))
    given = {t: random_points(rng, [sizes[r] for r in DECLARED[t]], rng.choice([0.3, 0.8])) for t in "AB"}
    text = yaml.safe_dump(spec)
    tensors = {t: data.tensor(t, DECLARED[t], sizes, p) for t, p in given.items()}
    found = traffic(read_teaal(text), tensors, walked=walked, replacement="lru").metrics()
    assert found == metrics(data.plain(text), {}, given, sizes, walked, "lru")


@pytest.mark.parametrize("name", data.DESIGNS)
@pytest.mark.parametrize("seed", seeds(3, range(12)))
@pytest.mark.thin(5)
def test_designs_on_random_data(name: str, seed: int) -> None:
    """The ranks to be walked over their shape are found in the formats."""
    rng = Random(seed)
    sizes = {r: rng.randint(1, 20) for r in "KMN"}
    tiles = {f"{r}{i}": n for r in "KMN" for i, n in ((1, 6), (0, 2))}
    given = {t: random_points(rng, [sizes[r] for r in DECLARED[t]], rng.choice([0.1, 0.4])) for t in "AB"}
    ours, slow = both(data.design(name), tiles, sizes, given, data.WALKED.get(name), None)
    assert ours == slow


def test_a_row_pointer_is_read_for_rows_that_are_not_found() -> None:
    """A asks for rows 1, 3, 9 of B, which holds 1, 2, 5, 7, 8: 3 is looked for where 5 lies, 9 behind all.
    Two pointers to a line: places 0, 2 and 5 lie on three lines; row 1 has two more."""
    given = {"A": {(k, 0): 1 for k in (1, 3, 9)}, "B": {(k, 0): 1 for k in (1, 2, 5, 7, 8)}}
    sizes = {"K": 10, "M": 1, "N": 1}
    ours, slow = both(data.design("gamma"), {}, sizes, given, data.WALKED["gamma"], None)
    assert ours == slow
    assert ours["T"]["MainMemory"]["B"] == {"read": 64 * (3 + 2)}


@pytest.mark.parametrize("seed", range(3))
def test_gamma_on_skewed_data_with_empty_rows(seed: int) -> None:
    """Of 64 rows of B the larger half is empty; the nonzeros of A crowd in few columns."""
    rng = Random(seed)
    sizes = {"K": 64, "M": 48, "N": 56}
    rows = rng.sample(range(64), 26)
    given = {
        "A": {(min(63, int(64 * rng.random() ** 3)), rng.randrange(48)): 1 for _ in range(200)},
        "B": {(rng.choice(rows), int(56 * rng.random() ** 2)): 1 for _ in range(150)},
    }
    found, slow = both(data.design("gamma"), {}, sizes, given, data.WALKED["gamma"], None)
    assert found == slow


def test_row_pointers_of_gamma_by_hand() -> None:
    """Lines of 64 bits: two pointers, two coordinates or one value. A looks up every row it asks for."""
    rng = Random(3)
    stored = rng.sample(range(40), 17)
    given = {
        "A": {(k, rng.randrange(48)): 1 for k in range(64) for _ in range(max(0, 30 // (k + 1)) or k % 2)},
        "B": {(k, n): 1 for k in stored for n in rng.sample(range(56), rng.randint(1, 9))},
    }
    sizes = {"K": 64, "M": 48, "N": 56}
    tensors = {t: data.tensor(t, DECLARED[t], sizes, p) for t, p in given.items()}
    found = traffic(read_teaal(data.design("gamma")), tensors).metrics()
    rows = [sum(k == row for k, _ in given["B"]) for row in range(64)]
    asked = {k for k, _ in given["A"]}
    place = [sum(n > 0 for n in rows[:k]) for k in range(64)]
    pointers = {place[k] // 2 for k in asked}
    lines = [-(-rows[k] // 2) + rows[k] for k in asked]
    assert found["T"]["MainMemory"]["B"] == {"read": 64 * (len(pointers) + sum(lines))}
    # Behind the last row of B nothing is stored: looking there costs a line that finding rows does not.
    assert len(pointers) == 1 + len({place[k] // 2 for k in asked if rows[k]})


@pytest.mark.parametrize("seed", range(12))
def test_flattened_ranks_in_parts_of_few_nonzeros(seed: int) -> None:
    """SIGMA with small parts, narrow lines and the kept tensor bound lazily as well."""
    rng = Random(seed)
    text = data.design("sigma").replace("uniform_shape(128)", f"uniform_shape({rng.randint(1, 5)})")
    text = text.replace("A.16384", f"A.{rng.randint(1, 6)}").replace("width: 4096", "width: 64")
    if seed % 2:
        eager = "rank: MK00, format: flattened, type: payload, evict-on: MK01, style: eager"
        lazy = "rank: MK00, type: payload, evict-on: MK01, format: flattened, style: lazy"
        assert eager in text or lazy.replace("lazy", "eager") in text
        text = text.replace(eager, lazy).replace(lazy.replace("lazy", "eager"), lazy)
    sizes = {r: rng.randint(1, 9) for r in "KMN"}
    given = {t: random_points(rng, [sizes[r] for r in DECLARED[t]], 0.5) for t in "AB"}
    ours, slow = both(text, {}, sizes, given, None, None)
    assert ours == slow


@pytest.mark.parametrize("evict", ["root", "I1", "I0", "K2"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.thin(7)
def test_buffets_of_spmm_with_a_sparse_operand(seed: int, evict: str) -> None:
    rng = Random(seed)
    sizes = {"I": rng.randint(1, 20), "J": rng.randint(1, 12), "K": rng.randint(1, 70)}
    given = {
        "A": random_points(rng, [sizes["I"], sizes["J"]], 0.3),
        "B": random_points(rng, [sizes["J"], sizes["K"]], rng.choice([0.1, 0.5, 1.0])),
    }
    ours, slow = both(data.spmm(evict, rng.choice(["I0", "K2"])), {}, sizes, given, None, None)
    assert ours == slow
