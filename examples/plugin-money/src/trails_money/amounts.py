"""``Money``: an amount with its currency, written ``12.50 EUR``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from trails import Kind, KindError

_FORM = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,4})?) ([A-Z]{3})")


class Money:
    """An amount of a currency; it never changes."""

    __slots__ = ("amount", "currency")

    def __init__(self, amount: Decimal, currency: str) -> None:
        self.amount: Final = amount
        self.currency: Final = currency

    def __eq__(self, other: object) -> bool:
        """Compare amount and currency: ``12.50 EUR`` is ``12.5 EUR``."""
        return isinstance(other, Money) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        """Write it without needless zeros."""
        text = f"{self.amount:f}"
        return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {self.currency}"

    def __repr__(self) -> str:
        return f"Money({self})"


def parse(text: str) -> Money:
    """Read an amount as it is written."""
    matched = _FORM.fullmatch(text)
    if matched is None:
        raise KindError
    return Money(Decimal(matched[1]), matched[2])


def coerce(value: object) -> Money:
    """Accept an amount, or its text."""
    if isinstance(value, Money):
        return parse(str(value))
    if isinstance(value, str):
        return parse(value)
    raise KindError


def repair(value: object) -> object:
    """Guess what was meant by ``EUR 12.5`` and ``12.5eur``."""
    matched = re.fullmatch(r"\s*([A-Za-z]{3})?\s*(-?[0-9.]+)\s*([A-Za-z]{3})?\s*", str(value))
    if matched is None or bool(matched[1]) == bool(matched[3]):
        return None
    guess = f"{matched[2]} {(matched[1] or matched[3]).upper()}"
    return guess if _FORM.fullmatch(guess) else None


MONEY = Kind(
    name="Money",
    schema={"type": "string", "pattern": f"^{_FORM.pattern}$"},
    expected="an amount of money like '12.50 EUR'",
    example=Money(Decimal("12.5"), "EUR"),
    coerce=coerce,
    datatype="https://example.org/money#amount",
    python=Money,
    lexical=str,
    parse=parse,
    repair=repair,
    plain=str,
    restore=parse,
    respelled=True,
    narrow=True,
)
