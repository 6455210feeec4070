"""Models that workers load when a request asks for them by id: where the request goes, and with which others."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import requests

from harness.client import later, together
from harness.gate import Gate
from harness.package import jitney
from harness.server import Server
from harness.wait import until

APP = """
import os
import time
from pathlib import Path

import jitney

HERE = Path(__file__).parent


def note(words):
    with (HERE / "notes").open("a") as notes:
        notes.write(words + "\\n")


class Adapter:
    def __init__(self, name):
        self.name = name
        note(f"load {name}")
        time.sleep(0.1)  # As long as a small file takes; the tests wait for nothing of it.

    def close(self):
        note(f"close {self.name}")


@jitney.model(workers=2, queue=1000)
class Adapters:
    @jitney.multiplexed(max=4)
    def load(self, model_id: str) -> Adapter:
        return Adapter(model_id)

    @jitney.batch(max_batch_size=8)
    def predict(self, x: list[int]) -> list[dict]:
        name = self.load().name
        assert name == jitney.multiplexed_model_id()
        return [{"model": name, "x": one, "worker": os.getpid(), "batch": len(x)} for one in x]

    @jitney.endpoint
    def hold(self, name: str) -> str:
        self.load()
        (HERE / f"{name}-arrived").touch()
        while not (HERE / f"{name}-opened").exists():
            time.sleep(0.005)
        return name
"""

MODELS = ["app:Adapters"]


def ask(served: Server, model: str, x: int) -> dict:
    headers = {"serve_multiplexed_model_id": model} if model else {}
    answer = requests.post(served.urls["inference"] + "/Adapters/predict", json={"x": x}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def notes(home: Path, kind: str) -> list[str]:
    lines = (home / "notes").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(kind)]


@pytest.fixture
def two_workers(served: Server) -> Server:
    until(lambda: len(served.describe("Adapters")["workers"]) == 2, "two workers")
    return served


def test_eight_models_are_loaded_once_each_by_two_workers_that_keep_four(two_workers: Server, home: Path):
    ids = [f"customer-{number}" for number in range(8)]
    for _ in range(4):
        answers = [ask(two_workers, model, 3) for model in ids]
        assert [answer["model"] for answer in answers] == ids
    assert notes(home, "load") == ids
    assert len({answer["worker"] for answer in answers}) == 2


def test_the_requests_of_a_batch_ask_for_the_same_model(two_workers: Server):
    wanted = [f"customer-{number % 3}" for number in range(90)]
    answers = together([partial(ask, two_workers, model, x) for x, model in enumerate(wanted)])
    assert [(answer["model"], answer["x"]) for answer in answers] == [(model, x) for x, model in enumerate(wanted)]


def test_a_model_whose_worker_is_held_is_loaded_by_the_other_one(two_workers: Server, home: Path):
    first = ask(two_workers, "held", 1)["worker"]
    url, headers = two_workers.urls["inference"] + "/Adapters/hold", {"serve-multiplexed-model-id": "held"}
    gate = Gate(home)
    holding = later(lambda: requests.post(url, json={"name": "gate"}, headers=headers))
    gate.wait()
    assert ask(two_workers, "held", 2)["worker"] != first
    assert notes(home, "load").count("held") == 2
    gate.open()
    assert holding.result().text == "gate"
    assert notes(home, "close"), "those that made room were closed"


def test_a_handle_says_which_model_it_asks_for(two_workers: Server, session: jitney.Session):
    handle = session.model("Adapters").options(multiplexed_model_id="customer-1")
    assert handle.predict.remote(x=1).result()["model"] == "customer-1"
    other = handle.options(multiplexed_model_id="customer-2")
    assert other.predict.remote(x=1).result()["model"] == "customer-2"


def test_a_request_that_names_no_model_is_told_how_to(two_workers: Server):
    answer = requests.post(two_workers.urls["inference"] + "/Adapters/predict", json={"x": 1})
    assert answer.status_code == 400 and "serve_multiplexed_model_id" in answer.json()["message"], answer.text
