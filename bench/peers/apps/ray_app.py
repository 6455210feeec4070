"""Ray Serve: `python ray_app.py PORT FOLDER`."""

import sys

import ray
import work
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=1, max_ongoing_requests=1000)
class Work:
    """The model behind Ray Serve."""

    def __init__(self) -> None:
        self.model = work.load()

    @serve.batch(max_batch_size=work.BATCH, batch_wait_timeout_s=work.DELAY_MS / 1e3)
    async def batched(self, inputs: list) -> list[int]:
        return self.model(inputs)

    async def __call__(self, request: Request) -> int:
        value = await request.body() if work.RAW else (await request.json())["input"]
        return await self.batched(value)


if __name__ == "__main__":
    ray.init(_temp_dir=sys.argv[2], include_dashboard=False, object_store_memory=200_000_000)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Work.bind(), blocking=True)
