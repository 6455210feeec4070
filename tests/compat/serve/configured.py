"""Options of deployments: configuration, replicas, environment, names, answers of many kinds."""

import os

import requests
from ray import serve
from ray.serve.config import AutoscalingConfig
from starlette.requests import Request
from starlette.responses import JSONResponse, Response


@serve.deployment(
    name="Configured",
    user_config={"threshold": 1},
    autoscaling_config=AutoscalingConfig(min_replicas=1, max_replicas=2),
    health_check_period_s=5,
    graceful_shutdown_timeout_s=1,
    ray_actor_options={"num_cpus": 0, "runtime_env": {"env_vars": {"COLOUR": "green"}}},
)
class Settings:
    def __init__(self):
        self.threshold = 0

    def reconfigure(self, config: dict):
        self.threshold = config["threshold"]

    def check_health(self):
        if self.threshold < 0:
            raise RuntimeError("unwell")

    async def __call__(self, request: Request):
        kind = request.query_params.get("kind", "")
        return {
            "number": 3,
            "text": "héllo",
            "bytes": b"abc",
            "nothing": None,
            "object": {"a": [1, 2.5, None], "ü": True},
            "tuple": (1, 2),
            "response": Response("teapot", 418, media_type="text/plain", headers={"x-kind": "pot"}),
            "json": JSONResponse({"status": "made"}, 201),
            "request": [request.method, request.url.path, (await request.body()).decode(), request.headers.get("x-a")],
            "context": [serve.get_replica_context().deployment, serve.get_replica_context().app_name],
        }[kind]

    def settings(self) -> list:
        return [self.threshold, os.environ["COLOUR"]]


app = Settings.options(user_config={"threshold": 7}).bind()


def ask(url: str, handle) -> dict:
    kinds = ("number", "text", "bytes", "nothing", "object", "tuple", "response", "json", "request", "context", "?")
    asked = [requests.post(f"{url}/below", params={"kind": kind}, data="B", headers={"x-a": "b"}) for kind in kinds]
    body = [one.json() if "json" in one.headers.get("content-type", "") else one.text for one in asked]
    heads = [
        [one.status_code, one.status_code < 500 and one.headers.get("content-type"), one.headers.get("x-kind")]
        for one in asked
    ]
    return {"heads": heads, "bodies": body, "settings": handle.settings.remote().result()}
