"""Two services that need nothing but Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import bentoml


@bentoml.service
class Prices:
    def __init__(self) -> None:
        self.prices = {"tea": 2.0, "milk": 1.5}

    @bentoml.api(batchable=True, max_batch_size=16)
    def look_up(self, items: list[str]) -> list[float]:
        return [self.prices.get(item, 0.0) for item in items]


@bentoml.service(traffic={"timeout": 30})
class Shop:
    prices = bentoml.depends(Prices)

    @bentoml.api
    async def total(self, baskets: list[list[str]]) -> list[float]:
        found = await asyncio.gather(*(self.prices.to_async.look_up(basket) for basket in baskets))
        return [sum(one) for one in found]

    @bentoml.api
    def sync_total(self, basket: list[str]) -> float:
        return sum(self.prices.look_up(basket))

    @bentoml.api
    async def receipt(self, basket: list[str]) -> AsyncGenerator[str, None]:
        for item, price in zip(basket, await self.prices.to_async.look_up(basket)):
            yield f"{item} {price}\n"
