"""What deployments ask of their surroundings: the event loop, their rank, others by name, the state of all; and what
they are given and give back: objects, references, values of many types.
"""

import asyncio
import datetime
import decimal
import pathlib
import uuid

import ray
import requests
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig, ReplicaRank


class Graph:
    def __init__(self, nodes: int, parts: list):
        self.nodes, self.parts = nodes, parts


@ray.remote
def shout(text: str) -> str:
    return text.upper()


@serve.deployment(num_replicas=2, user_config={"name": "ranks"})
class Ranked:
    def __init__(self):
        self.seen = serve.get_replica_context().rank.rank

    def reconfigure(self, config: dict, rank: ReplicaRank):
        self.name, self.same = config["name"], rank.rank == self.seen

    def __call__(self) -> list:
        context = serve.get_replica_context()
        return [self.name, self.same, self.seen in (0, 1), context.world_size]


@serve.deployment
class Counter:
    def count(self, graph: Graph, more: list[Graph]) -> list:
        return [type(graph).__name__, graph.nodes + sum(one.nodes for one in more), graph.parts]

    def hello(self) -> str:
        return "hello"


VALUES = {
    "uuid": uuid.UUID(int=7),
    "path": pathlib.PurePosixPath("/a/b"),
    "decimal": [decimal.Decimal("2"), decimal.Decimal("2.5")],
    "time": [datetime.timedelta(seconds=90), datetime.date(2026, 1, 2)],
}


@serve.deployment(logging_config=LoggingConfig(encoding="JSON"))
class Asker:
    def __init__(self, counter: DeploymentHandle, ranked: DeploymentHandle):
        self.loop = asyncio.get_running_loop()
        self.counter, self.ranked = counter, ranked

    async def __call__(self, request):
        what = request.query_params["what"]
        if what == "query":
            return request.query_params
        if what == "headers":
            return request.headers
        return VALUES[what]

    async def ask(self) -> dict:
        app = serve.get_replica_context().app_name
        by_name = serve.get_deployment_handle("Counter", app)
        reference = shout.remote(await self.counter.hello.remote()._to_object_ref())
        status = await asyncio.to_thread(serve.status)
        return {
            "same loop": self.loop is asyncio.get_running_loop(),
            "by name": await by_name.hello.remote(),
            "root": await serve.get_app_handle(app).hello.remote(),
            "reference": await reference,
            "running": [name for name, one in status.applications.items() if one.status == "RUNNING"],
            "object": await self.counter.count.remote(Graph(2, ["a"]), [Graph(3, []), Graph(4, [])]),
            "ranked": await self.ranked.remote(),
        }

    def hello(self) -> str:
        return "hello from the root"


app = Asker.bind(Counter.bind(), Ranked.bind())


def ask(url: str, handle) -> dict:
    asked = {what: requests.get(url, params={"what": what}).json() for what in ("query", *VALUES)}
    headers = requests.get(url, params={"what": "headers"}, headers={"X-Mark": "red"}).json()
    return {"mark": headers["x-mark"], **asked, **handle.ask.remote().result()}
