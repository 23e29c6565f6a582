"""Texts that follow the grammars of the small languages in a spec, now and then with a slip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.fuzz.mutate import NUMBERS, WORDS, bytewise, wordwise

NAMES = ("TM", "TN", "M", "N", "m", "n", "p", "r", "inf", "pi", "e", "x")
SETS = (
    "A", "B", "T1", "W", "All", "Inputs", "Outputs()", "Intermediates", "Shared", "Nothing", "Tensors",
    "weight", "DRAM", "DRAM.tensors", "m", "Other",
)  # fmt: skip


def expression(random: Random, depth: int = 5, names: Sequence[str] = NAMES) -> str:
    """Arithmetic: numbers, names, all operators, calls."""
    if depth == 5 and random.random() < 0.03:
        return chain(random, random.choice(names), ("+", "-", "*", "**", "//", "%", "(", "-(", "max("))
    act = random.randrange(9) if depth else random.randrange(3)
    below = lambda: expression(random, depth - 1, names)  # noqa: E731  # a name for three uses in one place
    if act == 0:
        return random.choice(NUMBERS)
    if act == 1:
        return random.choice(names)
    if act == 2:
        return str(random.randint(-20, 200))
    if act == 3:
        return f"{random.choice('+-')}{below()}"
    if act == 4:
        called = random.choice(("min", "max", "ceil", "floor", "log2", "sqrt", "divisors", "open"))
        return f"{called}({', '.join(below() for _ in range(random.randint(0, 3)))})"
    operator = random.choice(("+", "-", "*", "/", "//", "%", "**", " mod ", " + "))
    return f"({below()}){operator}{below()}" if act < 7 else f"{below()}{operator}{below()}"


def chain(random: Random, name: str, signs: Sequence[str]) -> str:
    """One operator again and again, about as often as is allowed."""
    sign, times = random.choice(signs), random.choice((30, 39, 41, 299, 301, 900, 5000))
    return f"{sign}{name}" * times if random.random() < 0.5 else f"{name}{sign}" * times + name


def comparison(random: Random) -> str:
    """Chains of comparisons."""
    sides = [expression(random, 2, ("TM", "TN", "TK")) for _ in range(random.randint(1, 4))]
    signs = [
        random.choice(("<", "<=", ">", ">=", "=", "==", "!=", " and ", " or ", "&&", "||")) for _ in sides
    ]
    return "".join(x for pair in zip(sides, signs, strict=True) for x in pair)[
        : -1 if random.random() < 0.8 else None
    ]


def set_expression(random: Random, depth: int = 5) -> str:
    """Sets of tensors or of rank variables."""
    if depth == 5 and random.random() < 0.03:
        return chain(random, "A", ("|", "&", "-", "~", "(", ".rank_variables|"))
    act = random.randrange(7) if depth else 0
    if act <= 1:
        return random.choice(SETS)
    if act == 2:
        return f"~{set_expression(random, depth - 1)}"
    if act == 3:
        return f"({set_expression(random, depth - 1)}).rank_variables"
    sign = random.choice(("|", "&", "-", " | ", "~", " or "))
    return f"({set_expression(random, depth - 1)}{sign}{set_expression(random, depth - 1)})"


def einsum(random: Random) -> str:
    """A one-line Einsum."""

    def access() -> str:
        ranks = []
        for _ in range(random.randint(0, 4)):
            written = expression(random, 2, ("m", "n", "k", "p", "r"))
            ranks.append(
                f"{random.choice(('H', 'M', 'm', '1'))}={written}" if random.random() < 0.4 else written
            )
        return f"{random.choice(('A', 'B', 'Y', 'T1', 'default'))}[{', '.join(ranks)}]"

    sign = random.choice((" * ", " + ", "*", " - ", ""))
    inputs = sign.join(access() for _ in range(random.randint(0, 4)))
    return f"{access()}{random.choice((' = ', '=', ' '))}{inputs}"


def constraint(random: Random) -> str:
    """Bounds of an iteration space."""
    sides = [expression(random, 2, ("m", "n", "k")) for _ in range(3)]
    signs = [random.choice(("<", "<=", "=", " and ", ">=", " mod 2 = ", " or ", "!=")) for _ in range(2)]
    return f"{sides[0]}{signs[0]}{sides[1]}{signs[1]}{sides[2]}"


_FILTERS = (
    "sum", "list", "length", "join", "sort", "round(200)", "string", "attr('a')", "format", "int", "float",
    "unique", "reverse", "first", "items", "map('upper')", "tojson",
)  # fmt: skip
_ATTRIBUTES = (
    "__class__", "append(1)", "format", "split('')", "upper()", "real", "get('a')", "__mro__", "mro()",
    "items()", "index(1)", "to_bytes(9)", "bit_length()",
)  # fmt: skip


def template(random: Random, depth: int = 4) -> str:
    """Jinja: values, loops, conditions, macros and what is refused."""
    kinds = random.randrange(12) if depth else random.randrange(4)
    inside = lambda: template(random, depth - 1)  # noqa: E731  # a name for many uses in one place
    value = _value(random, 3)
    if kinds <= 1:
        return random.choice(("a: 1\n", "- x\n", "  ", "text", "\n", *WORDS))
    if kinds <= 4:
        return f"{{{{ {value} }}}}"
    if kinds <= 6:
        return f"{{% for i in {value} %}}{inside()}{{% endfor %}}"
    if kinds == 7:
        return f"{{% if {value} %}}{inside()}{{% else %}}{inside()}{{% endif %}}"
    if kinds == 8:
        return f"{{% set {random.choice('xyi')} = {value} %}}{inside()}"
    if kinds == 9:
        return f"{{% macro f(x) %}}{inside()}{{% endmacro %}}{{{{ f({value}) }}}}"
    if kinds == 10:
        name = random.choice(
            ("include", "import", "block", "filter upper", "call", "raw", "with x = 1", "extends")
        )
        return f"{{% {name} %}}{inside()}{{% end{name.split()[0]} %}}"
    return inside() + inside()


def _value(random: Random, depth: int) -> str:
    act = random.randrange(9) if depth else random.randrange(3)
    if act == 0:
        return random.choice(
            ("N", "x", "i", "loop.index", "missing", "range", "''", "'ab'", "[]", "{}", "none")
        )
    if act == 1:
        return random.choice(("3", "10**6", "1.5", "2**70", "0", "-1", "9**9**9", "1e308", "10**59"))
    if act == 2:
        return random.choice(("range(5)", "range(10**5)", "range(10**9)", "range(3)|list", "namespace(a=1)"))
    if act == 3:
        return f"[{_value(random, depth - 1)}, {_value(random, depth - 1)}]"
    if act == 4:
        return f"({_value(random, depth - 1)})|{random.choice(_FILTERS)}"
    if act == 5:
        return f"({_value(random, depth - 1)}).{random.choice(_ATTRIBUTES)}"
    sign = random.choice(("+", "*", "**", "%", "~", "/", "//", "-", " in ", "==", " and ", " is "))
    return f"({_value(random, depth - 1)}{sign}{_value(random, depth - 1)})"


def slipped(random: Random, write: Callable[[Random], str]) -> str:
    """What `write` gives, in half of the cases with slips."""
    text = write(random)
    act = random.randrange(4)
    if act == 0:
        return wordwise(random, text, (*NUMBERS, *NAMES))
    if act == 1:
        return bytewise(random, text.encode("utf-8", "surrogatepass"), (), 3).decode("utf-8", "replace")
    return text
