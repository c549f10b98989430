"""Exchange rates: a type, and operations on it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from trails import Context, Node, capability, meta_capability, node_type, predicate
from trails_money.amounts import Money

EURO = "EUR"


@node_type
class ExchangeRate(Node):
    """What one unit of a currency costs in euros."""

    currency: str = predicate(key=True, label=True, pattern=r"^[A-Z]{3}$")
    price: Money = predicate(description="Of one unit, in EUR.")
    day: dt.date | None = predicate()


def find_rate(ctx: Context, currency: str) -> Decimal:
    """The price of one unit in euros."""
    if currency == EURO:
        return Decimal(1)
    return ExchangeRate.get(ctx, currency).price.amount


@capability("money.convert", idempotent=True, side_effects=["none"])
def convert(ctx: Context, amount: Money, to: str) -> Money:
    """Convert an amount into another currency, with the stored rates."""
    euros = amount.amount * find_rate(ctx, amount.currency)
    return Money((euros / find_rate(ctx, to)).quantize(Decimal("0.01")), to)


@meta_capability("trails.meta.money.missing", scope="builder", side_effects=["none"])
def missing(ctx: Context, currencies: list[str]) -> list[str]:
    """Say which currencies have no rate yet, so that it can be loaded."""
    known = {each.currency for each in ExchangeRate.objects(ctx)} | {EURO}
    return [each for each in currencies if each not in known]
