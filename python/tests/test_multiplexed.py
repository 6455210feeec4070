"""`@jitney.multiplexed`: what is kept, what goes, and which model a call asks for."""

import pytest

import jitney
from jitney.call.context import CallContext
from jitney.call.request import Request
from jitney.definition.multiplexed import TOLD_MAX, models_kept


class Source:
    model, reserves = "m", None

    def __init__(self, *ids):
        self.requests = [Request(headers={"serve-multiplexed-model-id": one} if one else {}) for one in ids]

    def request_at(self, position):
        return self.requests[position]

    def call(self):
        return CallContext(self, "predict", False, range(len(self.requests)))


class Host:
    def __init__(self):
        self.loads, self.closed = [], []

    @jitney.multiplexed(max=2)
    def load(self, model_id):
        self.loads.append(model_id)
        if model_id == "bad":
            raise OSError(model_id)
        closed = self.closed
        return type("Model", (), {"name": model_id, "close": lambda self: closed.append(self.name)})()


def test_the_latest_used_stay_and_those_that_go_are_closed():
    host = Host()
    for model_id in ("a", "b", "a", "c", "a", "b"):
        assert host.load(model_id).name == model_id
    assert (host.loads, host.closed) == (["a", "b", "c", "b"], ["b", "c"])
    assert Host().load("a").name == "a" and host.loads.count("a") == 1, "each object has models of its own"


def test_a_load_that_fails_is_tried_again():
    host = Host()
    for _ in range(2):
        with pytest.raises(OSError, match="bad"):
            host.load("bad")
    assert host.loads == ["bad", "bad"]


def test_without_an_id_the_loader_takes_that_of_the_call():
    host = Host()
    with Source("a", "a").call():
        assert jitney.multiplexed_model_id() == "a" and host.load().name == "a"
    with Source("").call(), pytest.raises(jitney.BadInput, match="serve_multiplexed_model_id"):
        host.load()
    with Source("a", "b").call(), pytest.raises(RuntimeError, match="several models"):
        host.load()


def test_the_server_is_told_how_many_models_a_worker_keeps():
    class Endless(Host):
        load = jitney.multiplexed(max=10**6)(lambda self, model_id: model_id)

    assert (models_kept(Host), models_kept(Source), models_kept(Endless)) == (2, 0, TOLD_MAX)
    with pytest.raises(jitney.DefinitionError, match="max"):
        jitney.multiplexed(max=0)
