"""Serves the applications that are named, all on one port, and prints their answers as one line of JSON.

python run_all.py PORT MODULE...
"""

import importlib
import json
import sys

import ray
from ray import serve


def main(port: int, names: list) -> None:
    ray.init(num_cpus=8, include_dashboard=False, logging_level="ERROR", object_store_memory=80 * 1024 * 1024)
    serve.start(http_options={"port": port})
    answers = {}
    for name in names:
        module = importlib.import_module(name)
        handle = serve.run(module.app, name=name, route_prefix=f"/{name}")
        answers[name] = module.ask(f"http://127.0.0.1:{port}/{name}", handle)
        serve.delete(name)
    serve.shutdown()
    ray.shutdown()
    print(json.dumps(answers))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
