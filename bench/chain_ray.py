"""The chain of chain.py in Ray Serve: `python chain_ray.py PORT FOLDER`. Three deployments with @serve.batch, handles."""

import asyncio
import sys

import ray
from ray import serve
from starlette.requests import Request

BATCH = 32


@serve.deployment(num_replicas=1, max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0.1})
class Part:
    """2 ms and 0.1 ms per item."""

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.002)
    async def __call__(self, numbers: list[int]) -> list[int]:
        await asyncio.sleep(0.002 + 0.0001 * len(numbers))
        return [one + 1 for one in numbers]


@serve.deployment(num_replicas=1, max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0.1})
class Driver:
    """Awaits three deployments one after another."""

    def __init__(self, first, second, third) -> None:
        self.first, self.second, self.third = first, second, third

    async def __call__(self, request: Request) -> int:
        number = (await request.json())["number"]
        number = await self.first.remote(number)
        number = await self.second.remote(number)
        return await self.third.remote(number)


if __name__ == "__main__":
    ray.init(_temp_dir=sys.argv[2], include_dashboard=False, object_store_memory=80_000_000, num_cpus=2)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    parts = [Part.options(name=name).bind() for name in ("First", "Second", "Third")]
    serve.run(Driver.bind(*parts), blocking=True)
