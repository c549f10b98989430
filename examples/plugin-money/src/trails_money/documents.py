"""Documents that agents and programs read."""

from __future__ import annotations

from trails import Context


def read_currencies(ctx: Context) -> dict[str, str]:
    """Every currency with its price in euros."""
    from trails_money.rates import ExchangeRate  # noqa: PLC0415 - its kind is known by now

    return {each.currency: str(each.price) for each in ExchangeRate.objects(ctx)}
