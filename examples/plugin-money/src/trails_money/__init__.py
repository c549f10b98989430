"""Amounts of money for Trails: a kind, a type, operations, a document and a command."""

from __future__ import annotations

from trails import Plugin, PluginCommand, PluginResource
from trails_money.amounts import MONEY, Money
from trails_money.documents import read_currencies

__all__ = ["Money", "plugin"]

plugin = Plugin(
    name="money",
    version="1.0.0",
    requires=">=0.1,<1",
    kinds=(MONEY,),
    modules=("trails_money.rates",),
    resources=(
        PluginResource(
            path="currencies",
            title="Currencies",
            description="The currencies that have a rate to the euro, with the newest rate.",
            read=read_currencies,
        ),
    ),
    commands=(
        PluginCommand(
            name="convert",
            capability="money.convert",
            summary="Convert an amount of money with the stored rates.",
        ),
    ),
)
