"""Prime factors and divisors of whole numbers as large as loops can have, without trying all numbers."""

from __future__ import annotations

from functools import lru_cache
from math import gcd, isqrt, prod

from polymodel.errors import Refused
from polymodel.governor import charge, tick

_TRIED = 1 << 12  # primes below it are divided out first
_STEPS = 20_000_000  # of the search for one factor: enough for two primes of 40 bits and more
_EACH = 100  # bytes of a divisor that is listed
MOST = 1_000_000  # divisors that are listed where no caller says
# With these bases the test is a proof below 3.3e24 (Sorenson and Webster, 2017); no exception is known above.
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)


def prime_factors(size: int) -> dict[int, int]:
    """Prime -> exponent, ascending. Refused for products of two large primes beyond reach."""
    return dict(_factors(size))


@lru_cache(maxsize=4096)
def _factors(size: int) -> tuple[tuple[int, int], ...]:
    result: dict[int, int] = {}
    for p in range(2, min(_TRIED, isqrt(max(size, 0)) + 1)):
        while size % p == 0:
            result[p] = result.get(p, 0) + 1
            size //= p
    waiting = [size] if size > 1 else []
    while waiting:
        n = waiting.pop()
        if n < _TRIED * _TRIED or _is_prime(n):
            result[n] = result.get(n, 0) + 1
        else:
            d = _part(n)
            waiting += [d, n // d]
    return tuple(sorted(result.items()))


def divisor_count(size: int) -> int:
    """How many divisors there are: 12 for 2048."""
    return prod(e + 1 for e in prime_factors(size).values())


@lru_cache(maxsize=4096)
def divisors(size: int, most: int = MOST) -> tuple[int, ...]:
    """Every divisor, ascending. Refused for more than `most`."""
    count = divisor_count(size)
    if count > most:
        message = f"{size} has {count:,} divisors, more than {most:,}"
        raise Refused(message, "give the sizes to look at", code="too-large")
    charge(_EACH * count, f"listing the divisors of {size}")
    result = [1]
    for p, e in prime_factors(size).items():
        result = [d * p**k for d in result for k in range(e + 1)]
    return tuple(sorted(result))


def _is_prime(n: int) -> bool:
    """Miller and Rabin's test."""
    even = ((n - 1) & (1 - n)).bit_length() - 1
    for base in _BASES:
        x = pow(base, (n - 1) >> even, n)
        if x in (1, n - 1):
            continue
        for _ in range(even - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def _part(n: int) -> int:
    """A divisor of a composite number, by Pollard's rho in Brent's form."""
    root = isqrt(n)
    if root * root == n:
        return root
    steps = 0
    for c in range(1, 100):
        y = saved = 2
        d, power, batch = 1, 1, 1
        while d == 1:
            x = y
            for _ in range(power):
                y = (y * y + c) % n
            done = 0
            while done < power and d == 1:
                saved = y
                for _ in range(min(128, power - done)):
                    y = (y * y + c) % n
                    batch = batch * abs(x - y) % n
                d = gcd(batch, n)
                done += 128
                tick(f"factoring {n}", 128)
                steps += 128
                if steps > _STEPS:
                    what = f"the prime factors of {n} are too large to find"
                    raise Refused(what, "give the sizes to look at", code="too-large")
            power *= 2
        if d == n:  # several at once: one by one
            d = 1
            while d == 1:
                saved = (saved * saved + c) % n
                d = gcd(abs(x - saved), n)
        if d != n:
            return d
    message = f"the prime factors of {n} are too large to find"
    raise Refused(message, "give the sizes to look at", code="too-large")
