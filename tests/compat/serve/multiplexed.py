"""Many models in one replica, of which it keeps the two that were used last."""

import requests
from ray import serve
from starlette.requests import Request


class Model:
    def __init__(self, name: str):
        self.name = name

    def predict(self, x: int) -> str:
        return f"{self.name}:{x * len(self.name)}"


@serve.deployment
class Models:
    def __init__(self):
        self.loaded: list[str] = []

    @serve.multiplexed(max_num_models_per_replica=2)
    async def get_model(self, model_id: str) -> Model:
        self.loaded.append(model_id)
        return Model(model_id)

    async def __call__(self, request: Request) -> str:
        model = await self.get_model(serve.get_multiplexed_model_id())
        return model.predict(int(request.query_params["x"]))

    async def predict(self, x: int) -> list:
        model = await self.get_model(serve.get_multiplexed_model_id())
        return [serve.get_multiplexed_model_id(), model.predict(x)]

    def loads(self) -> list[str]:
        return self.loaded


app = Models.bind()


def ask(url: str, handle) -> dict:
    def over_http(model: str, x: int) -> str:
        return requests.get(url, params={"x": x}, headers={"serve_multiplexed_model_id": model}).text

    answers = [over_http("one", 1), over_http("three", 2), over_http("one", 3)]
    other = handle.options(multiplexed_model_id="seven")
    answers += [other.predict.remote(4).result(), over_http("one", 5), over_http("three", 6)]
    return {"answers": answers, "loads": handle.loads.remote().result(), "none": requests.get(f"{url}?x=1").status_code}
