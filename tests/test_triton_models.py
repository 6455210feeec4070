"""Models of a Triton repository: ONNX files behind other shapes and in sequences, and `model.py` of the Python backend,
called with Triton's own clients."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from harness import triton_repository
from harness.server import ASK_SECONDS, Server
from harness.wait import until
from test_triton_grpc import address

PATIENCE = 120


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("triton")
    models = home / "models"
    triton_repository.write(models)
    server = Server(binary, home / "server", ["serve", models], wait_for_workers=False)
    yield server.started()
    server.end()


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(address(server)) as client:
        for name in triton_repository.NAMES:
            until(lambda name=name: client.is_model_ready(name), f"{name} is ready")
        yield client


@pytest.fixture
def http(server: Server, client: Any) -> Iterator[Any]:
    with triton_http.InferenceServerClient(server.url("").removeprefix("http://").rstrip("/")) as client:
        yield client


def tensors(kind: Any, **arrays: Any) -> list[Any]:
    made = []
    for name, array in arrays.items():
        types = {"f": "FP32", "i": "INT32", "O": "BYTES", "S": "BYTES"}
        one = kind.InferInput(name, list(array.shape), types[array.dtype.kind])
        one.set_data_from_numpy(array)
        made.append(one)
    return made


def floats(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_a_model_is_seen_in_the_shapes_of_its_configuration(client: Any, http: Any) -> None:
    x = floats(2, 3)
    for kind, one in ((triton, client), (triton_http, http)):
        answer = one.infer("reshaped", tensors(kind, x=x))
        assert answer.as_numpy("y").tolist() == (x + 1).reshape(6).tolist()
        rows = one.infer("rows", tensors(kind, x=np.stack([x, x])))
        assert rows.as_numpy("y").shape == (2, 3, 2)
    told = http.get_model_config("reshaped")
    assert (told["max_batch_size"], told["input"][0]["dims"]) == (0, [2, 3])
    told = http.get_model_metadata("rows")
    assert (told["inputs"][0]["shape"], told["outputs"][0]["shape"]) == ([-1, 2, 3], [-1, 3, 2])
    with pytest.raises(InferenceServerException, match=r"FP32 of shape \[2, 3\], and FP32 of shape \[1, 6\] came"):
        http.infer("reshaped", tensors(triton_http, x=floats(1, 6)))


def test_the_server_is_called_triton_where_the_repository_is(client: Any, http: Any) -> None:
    assert client.get_server_metadata().name == http.get_server_metadata()["name"] == "triton"
    assert http.get_model_metadata("add_sub")["versions"] == ["3"]


def test_controls_tell_an_onnx_model_of_its_sequence(client: Any, http: Any) -> None:
    def ask(one: Any, kind: Any, number: int, **said: Any) -> int:
        answer = one.infer("counted", tensors(kind, x=np.array([[number]], np.int32)), **said)
        return int(answer.as_numpy("y")[0, 0])

    for kind, one, name in ((triton, client, 5), (triton_http, http, "six")):
        said = {"sequence_id": name}
        assert ask(one, kind, 1, sequence_start=True, **said) == 102
        assert ask(one, kind, 1, **said) == 101
        assert ask(one, kind, 1, sequence_end=True, **said) == 111
        with pytest.raises(InferenceServerException):  # It is over.
            ask(one, kind, 1, **said)
        with pytest.raises(InferenceServerException, match="correlation ID"):
            ask(one, kind, 1)


@pytest.mark.parametrize("name", ["summed", "added"])
def test_state_tensors_stay_with_their_sequence(client: Any, http: Any, name: str) -> None:
    def ask(one: Any, kind: Any, number: int, **said: Any) -> int:
        answer = one.infer(name, tensors(kind, x=np.array([[number]], np.int32)), **said)
        assert [out if isinstance(out, str) else out.name for out in outputs(answer)] == ["y"]
        return int(answer.as_numpy("y")[0, 0])

    for kind, one, key in ((triton, client, 7), (triton_http, http, 8)):
        first, second = {"sequence_id": key}, {"sequence_id": key + 100}
        assert ask(one, kind, 1, sequence_start=True, **first) == 2
        assert ask(one, kind, 10, sequence_start=True, **second) == 20
        assert ask(one, kind, 2, **first) == 6
        assert ask(one, kind, 30, sequence_end=True, **second) == 80
        assert ask(one, kind, 3, sequence_end=True, **first) == 12
        assert ask(one, kind, 4, sequence_start=True, sequence_end=True, **first) == 8
    told = http.get_model_metadata(name)
    assert [one["name"] for one in (*told["inputs"], *told["outputs"])] == ["x", "y"]


def outputs(answer: Any) -> list[Any]:
    told = answer.get_response()
    return [one["name"] for one in told["outputs"]] if isinstance(told, dict) else list(told.outputs)


def test_state_tensors_follow_requests_that_were_sent_ahead(client: Any) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    for turn in range(5):
        said = {"sequence_start": turn == 0, "sequence_end": turn == 4}
        x = tensors(triton, x=np.array([[1]], np.int32))
        client.async_stream_infer("summed", x, sequence_id=77, **said)
    found = [int(answers.get(timeout=PATIENCE).as_numpy("y")[0, 0]) for _ in range(5)]
    client.stop_stream()
    assert found == [2, 4, 6, 8, 10]


def test_a_model_of_the_python_backend_runs_as_it_is(client: Any, http: Any) -> None:
    a, b = floats(2, 2), floats(2, 2) + 5
    for kind, one in ((triton, client), (triton_http, http)):
        answer = one.infer("add_sub", tensors(kind, a=a, b=b), request_id="mine", parameters={"tone": "low"})
        assert answer.as_numpy("sum").tolist() == ((a + b) * 2).tolist()
        assert answer.as_numpy("seen").tolist() == [[b'["mine", {"tone": "low"}]']] * 2
        told = answer.get_response()
        if kind is triton:
            assert (told.parameters["rows"].int64_param, told.parameters["tone"].string_param) == (2, "low")
        else:
            assert told["parameters"] == {"rows": 2, "tone": "low"}
    only = http.infer("add_sub", tensors(triton_http, a=a, b=b), outputs=[triton_http.InferRequestedOutput("sum")])
    assert [one["name"] for one in only.get_response()["outputs"]] == ["sum"]
    told = http.get_model_config("add_sub")
    assert (told["max_batch_size"], told["input"][0]["dims"]) == (8, [2])


def test_responses_of_one_batch_fail_alone(client: Any) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    for sign in (1, -1, 1, 1):
        a = floats(1, 2) * sign + sign
        client.async_infer("add_sub", tensors(triton, a=a, b=a), lambda result, error: answers.put(result or error))
    found = [answers.get(timeout=PATIENCE) for _ in range(4)]
    failed = [one for one in found if isinstance(one, InferenceServerException)]
    assert [one.status() for one in failed] == ["StatusCode.INVALID_ARGUMENT"]
    assert "no negative numbers" in str(failed[0])


def test_requests_of_different_lengths_share_a_batch_where_the_model_allows_it(server: Server, client: Any) -> None:
    """The batch goes when it is full, and an hour later otherwise."""
    answers: queue.Queue[Any] = queue.Queue()
    for length, priority in ((2, 1), (3, 2)):
        x = tensors(triton, x=floats(1, length))
        client.async_infer("ragged", x, lambda result, error: answers.put(error or result), priority=priority)
    found = [answers.get(timeout=PATIENCE).as_numpy("y").tolist() for _ in range(2)]
    assert sorted(found) == [[[1.0, 2.0]], [[3.0, 2.0]]]
    server.logged("of priority_levels there are two here")


def test_a_configuration_says_which_inputs_are_ragged_or_optional(client: Any, http: Any) -> None:
    def flags(name: str) -> dict[str, tuple[bool, bool]]:
        told = http.get_model_config(name)["input"]
        same = client.get_model_config(name).config.input
        found = {one["name"]: (one["allow_ragged_batch"], one["optional"]) for one in told}
        assert found == {one.name: (one.allow_ragged_batch, one.optional) for one in same}
        return found

    assert flags("ragged") == {"x": (True, False), "bias": (False, True)}
    assert flags("rows") == {"x": (False, False)}


def test_a_decoupled_model_sends_what_it_likes(client: Any, http: Any) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))

    def ask(numbers: list[int]) -> list[Any]:
        client.async_stream_infer("repeat", tensors(triton, **{"in": np.array(numbers, np.int32)}),
                                  enable_empty_final_response=True)  # fmt: skip
        found: list[Any] = []
        while True:
            result, error = answers.get(timeout=PATIENCE)
            if error is not None:
                return [*found, str(error)]
            if not result.get_response().outputs:
                return found
            found.append(int(result.as_numpy("out")[0]))

    assert ask([3, 1, 4]) == [3, 1, 4]
    assert ask([]) == []
    assert ask([7, -1])[0] == 7 and "below zero" in ask([-1])[-1]
    client.stop_stream()
    one = tensors(triton_http, **{"in": np.array([9], np.int32)})
    assert http.infer("repeat", one).as_numpy("out").tolist() == [9]
    two = tensors(triton_http, **{"in": np.array([9, 8], np.int32)})
    with pytest.raises(InferenceServerException, match="decoupled"):
        http.infer("repeat", two)


def generate(server: Server, path: str, **fields: Any) -> requests.Response:
    return requests.post(server.url(f"/v2/models/{path}"), json=fields, timeout=ASK_SECONDS)


def test_generate_takes_inputs_as_fields(server: Server, client: Any) -> None:
    answer = generate(server, "add_sub/generate", a=[1, 2], b=[[3, 4]], id="mine", tone="low")
    seen = '["mine", {"tone": "low"}]'
    named = {"id": "mine", "model_name": "add_sub", "model_version": "3"}
    assert answer.json() == {"sum": [8.0, 12.0], "seen": seen, "rows": 1, "tone": "low", **named}
    answer = generate(server, "rows/versions/1/generate", x=[0, 1, 2, 3, 4, 5])
    assert answer.json()["y"] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert generate(server, "repeat/generate", **{"in": [9]}).json()["out"] == 9
    for path, fields, expected in (
        ("repeat/generate", {"in": [9, 8]}, "generate_stream"),
        ("repeat/generate", {"in": []}, "generate_stream"),
        ("repeat/generate", {"in": ["nine"]}, "is not an element of INT32"),
        ("add_sub/generate", {"a": [1, 2]}, 'needs input "b"'),
        ("add_sub/generate", {"a": [-1, 2], "b": [1, 2]}, "no negative numbers"),
        ("add_sub/generate", {"a": [1, 2], "b": [1, 2], "c": [1]}, "is no input"),
    ):
        answer = generate(server, path, **fields)
        assert answer.status_code == 400 and expected in answer.json()["error"], answer.text
    assert generate(server, "nobody/generate").status_code == 404


def test_generate_streams_events(server: Server, client: Any) -> None:
    def events(path: str, **fields: Any) -> list[Any]:
        answer = generate(server, path, **fields)
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
        lines = [line for line in answer.text.split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    named = {"model_name": "repeat", "model_version": "1"}
    found = events("repeat/generate_stream", **{"in": [3, 4]})
    assert found == [{"out": 3, "is_odd": True, **named}, {"out": 4, "is_odd": False, **named}]
    found = events("repeat/versions/1/generate_stream", **{"in": [3, -1]})
    assert found[0]["out"] == 3 and "below zero" in found[1]["error"]
    assert events("repeat/generate_stream", **{"in": []}) == []
    assert [one["y"] for one in events("rows/generate_stream", x=[0] * 6)] == [[1.0] * 6]
    answer = generate(server, "repeat/generate_stream", **{"in": [-1]})
    assert answer.status_code == 500 and "below zero" in answer.json()["error"]


def test_a_model_calls_others(http: Any) -> None:
    def ask(name: str) -> Any:
        named = np.array([name.encode()], dtype=object)
        return http.infer("caller", tensors(triton_http, model=named, x=floats(2, 3))).as_numpy("y")

    assert ask("reshaped").tolist() == (floats(6) + 1).tolist()
    assert ask("repeat").tolist() == [0, 1, 2]
    with pytest.raises(InferenceServerException, match="nobody"):
        ask("nobody")


def test_a_call_waits_no_longer_than_it_says(server: Server, http: Any) -> None:
    """The model that is called answers after its caller has given up, and not before."""
    named = np.array([b"held"], dtype=object)
    with pytest.raises(InferenceServerException, match="no answer within 50000 microseconds"):
        http.infer("caller", tensors(triton_http, model=named, x=floats(2, 3)))
    (server.home.parent / "models/waiting/1/open").touch()
    assert http.infer("waiting", tensors(triton_http, x=floats(2, 3))).as_numpy("x").tolist() == floats(2, 3).tolist()


@pytest.mark.parametrize("name", ["talk", "talk_direct"])
def test_a_model_keeps_its_sequences_apart(client: Any, name: str) -> None:
    answers: dict[int, list[int]] = {}
    processes: dict[int, set[int]] = {}

    def talk(key: int) -> None:
        for turn, number in enumerate((1, 2, 3)):
            x = np.array([[number * key]], np.int32)
            said = {"sequence_start": turn == 0, "sequence_end": turn == 2}
            answer = client.infer(name, tensors(triton, x=x), sequence_id=key, **said)
            answers.setdefault(key, []).append(int(answer.as_numpy("total")[0, 0]))
            processes.setdefault(key, set()).add(int(answer.as_numpy("process")[0, 0]))

    threads = [threading.Thread(target=talk, args=(key,)) for key in range(1, 7)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE)
    assert answers == {key: [key, 3 * key, 6 * key] for key in range(1, 7)}
    assert [len(found) for found in processes.values()] == [1] * 6


@pytest.mark.parametrize("strategy", triton_repository.PAIRS)
def test_batches_of_sequences_wait_as_their_strategy_says(client: Any, strategy: str) -> None:
    """Every batch goes when a request of each sequence is in it, and an hour later otherwise."""
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    for turn in range(3):
        said = {"sequence_start": turn == 0, "sequence_end": turn == 2}
        for key in (1, 2):
            x = tensors(triton, x=np.array([[key]], np.int32))
            client.async_stream_infer(f"pairs_{strategy}", x, sequence_id=key, request_id=str(key), **said)
    found: dict[str, list[list[int]]] = {"1": [], "2": []}
    for _ in range(6):
        answer = answers.get(timeout=PATIENCE)
        told = [int(answer.as_numpy(name)[0, 0]) for name in ("total", "together")]
        found[answer.get_response().id].append(told)
    client.stop_stream()
    assert found == {"1": [[1, 2], [2, 2], [3, 2]], "2": [[2, 2], [4, 2], [6, 2]]}


def test_a_model_completes_its_configuration(client: Any) -> None:
    answer = client.infer("completed", tensors(triton, x=floats(2)))
    assert answer.as_numpy("y").dtype == np.float32 and answer.as_numpy("y").tolist() == [0, 2]
    told = client.get_model_metadata("completed", as_json=True)
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["2"]}]
    assert told["outputs"] == [{"name": "y", "datatype": "FP32", "shape": ["2"]}]
    with pytest.raises(InferenceServerException, match=r"shape|expected"):
        client.infer("completed", tensors(triton, x=floats(3)))


def test_a_plain_request_is_told_what_to_send(server: Server, client: Any) -> None:
    answer = requests.post(server.url("/predictions/add_sub"), json={"a": [1, 2]}, timeout=ASK_SECONDS)
    assert answer.status_code == 400 and "takes tensors" in answer.text


def test_a_model_that_does_not_load_harms_no_other(server: Server, client: Any) -> None:
    assert not client.is_model_ready("broken") and client.is_model_ready("add_sub")
    server.logged("nothing_of_this_name")


def test_an_ensemble_calls_its_steps(http: Any) -> None:
    x = floats(3, 2, 3)
    answer = http.infer("twice_more", tensors(triton_http, first=x))
    assert answer.as_numpy("last").tolist() == (x + 2).tolist()
    assert http.get_model_config("twice_more")["max_batch_size"] == 4
    with pytest.raises(InferenceServerException, match="FP32 of shape"):
        http.infer("twice_more", tensors(triton_http, first=floats(1, 3, 3)))
