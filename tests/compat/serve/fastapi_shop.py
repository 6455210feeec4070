"""FastAPI in front of a deployment: routes are methods, and another deployment is behind them."""

import requests
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from ray import serve
from ray.serve.handle import DeploymentHandle

api = FastAPI(title="Shop")


class Order(BaseModel):
    item: str
    count: int = 1


@serve.deployment
class Prices:
    def price(self, item: str) -> float | None:
        return {"tea": 2.0, "milk": 1.5}.get(item)


@serve.deployment
@serve.ingress(api)
class Shop:
    def __init__(self, prices: DeploymentHandle):
        self.prices = prices
        self.sold: list[str] = []

    @api.get("/")
    def root(self):
        return "welcome"

    @api.get("/price/{item}")
    async def price(self, item: str, count: int = 1) -> dict:
        price = await self.prices.price.remote(item)
        if price is None:
            raise HTTPException(404, f"no {item} here")
        return {"item": item, "total": price * count}

    @api.post("/orders", status_code=201)
    async def order(self, order: Order) -> Order:
        self.sold.append(order.item)
        return order

    @api.get("/sold")
    def list_sold(self):
        return self.sold

    @api.get("/words")
    def words(self):
        return StreamingResponse((f"{word} " for word in ("fresh", "tea")), media_type="text/plain")

    def count(self) -> int:
        return len(self.sold)


app = Shop.bind(Prices.bind())


def ask(url: str, handle) -> dict:
    asked = [
        requests.get(f"{url}/"),
        requests.get(f"{url}/price/tea", params={"count": 3}),
        requests.get(f"{url}/price/sand"),
        requests.get(f"{url}/price/tea", params={"count": "many"}),
        requests.post(f"{url}/orders", json={"item": "milk", "count": 2}),
        requests.post(f"{url}/orders", json={}),
        requests.get(f"{url}/sold"),
        requests.get(f"{url}/words"),
        requests.get(f"{url}/nowhere"),
        requests.delete(f"{url}/sold"),
    ]
    return {
        "answers": [[one.status_code, one.headers.get("content-type"), one.text] for one in asked],
        "paths": sorted(requests.get(f"{url}/openapi.json").json()["paths"]),
        "count": handle.count.remote().result(),
    }
