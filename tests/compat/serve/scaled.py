"""How many replicas there are: the bounds, the fields beside them, and a policy of the user's own."""

import requests
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy


def always_one(context: AutoscalingContext) -> tuple:
    return 1, {}


@serve.deployment(
    max_ongoing_requests=4,
    autoscaling_config=AutoscalingConfig(
        min_replicas=1,
        initial_replicas=1,
        max_replicas=3,
        target_ongoing_requests=1,
        upscale_delay_s=1,
        policy=AutoscalingPolicy(policy_function=always_one),
    ),
)
class Scaled:
    async def __call__(self, request) -> str:
        return request.query_params["name"].upper()

    def twice(self, number: int) -> int:
        return 2 * number


def refused(**options) -> bool:
    try:
        AutoscalingConfig(**options)
    except ValueError:
        return True
    return False


app = Scaled.bind()


def ask(url: str, handle) -> dict:
    return {
        "web": requests.get(url, params={"name": "tea"}).text,
        "handle": [handle.twice.remote(number).result() for number in range(3)],
        "refused": [
            refused(min_replicas=3, max_replicas=2),
            refused(min_replicas=-1),
            refused(min_replicas=1, max_replicas=2, initial_replicas=3),
            refused(min_replicas=0, max_replicas=2),
        ],
    }
