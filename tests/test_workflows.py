"""Workflows as users run them: through every node, side by side where they may, all or nothing at registration.

The functions of tests/handlers/steps.py do what a request tells them and leave a file per call, so a test can hold
a node, look who was called, and let it go.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.archives import HANDLERS, Store
from harness.client import later, request, together
from harness.server import FREE_ADDRESSES, Server
from harness.wait import until

LINE = "dag:\n  first: [middle]\n  middle: [last]\nmodels:\n  timeout-ms: 60000\n  middle:\n    url: middle.mar\n"
FORK = "models: {timeout-ms: 60000}\ndag:\n  first: [left, right]\n"
DIAMOND = FORK + "  left: [join]\n  right: [join]\n"
HASTY = "models: {timeout-ms: 300, retry-attempts: 1}\ndag:\n  first: [last]\n"


def register(server: Server, file: str, **query: Any) -> requests.Response:
    """Registers a workflow."""
    return server.manage("POST", "/workflows", url=file, **query)


def run(server: Server, workflow: str, order: dict[str, Any], **headers: str) -> requests.Response:
    """Takes one request through a workflow."""
    return requests.post(server.url(f"/wfpredict/{workflow}"), json=order, headers=headers, timeout=120)


def names(server: Server) -> list[str]:
    """The models on the list."""
    return [model["modelName"] for model in server.manage("GET", "/models").json()["models"]]


@pytest.fixture(scope="module")
def flows(shared: Server) -> Server:
    """A server with a workflow of each shape."""
    shared.store.mar("middle", "echo")
    for name, spec in {"line": LINE, "fork": FORK, "diamond": DIAMOND, "hasty": HASTY}.items():
        reply = register(shared, shared.store.war(name, spec, "steps"))
        status = {"status": f"Workflow {name} has been registered and scaled successfully."}
        assert (reply.status_code, reply.json()) == (200, status), shared.log[-4000:]
    return shared


def test_a_request_runs_through_models_and_functions(flows: Server, tmp_path: Path) -> None:
    reply = run(flows, "line", {"dir": str(tmp_path)})
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json()["seen"] == ["first", "last"]
    shouted = requests.put(flows.url("/WFPREDICT/line/"), json={"dir": str(tmp_path)}, timeout=120)
    assert shouted.json()["seen"] == ["first", "last"]


def test_branches_run_side_by_side_and_meet_by_name(flows: Server, tmp_path: Path) -> None:
    # Each branch waits for the other one to have begun.
    order = {"dir": str(tmp_path), "do": {"left": ["wait", "right.0"], "right": ["wait", "left.0"]}}
    reply = run(flows, "diamond", order)
    assert (reply.status_code, reply.json()) == (200, {"left": ["first", "left"], "right": ["first", "right"]})


def test_every_node_sees_the_headers_of_the_request(flows: Server, tmp_path: Path) -> None:
    assert register(flows, flows.store.war("told", "dag: {first: [told]}", "steps")).status_code == 200
    reply = run(flows, "told", {"dir": str(tmp_path)}, **{"x-tenant": "blue"})
    assert reply.json() == {"x-tenant": "blue", "content-type": "application/json"}
    more = requests.post(flows.url("/wfpredict/told/1.0"), json={"dir": str(tmp_path)}, timeout=120)
    assert more.json()["x-tenant"] is None, "what stands behind the name is not looked at, as in TorchServe"


def test_several_ends_answer_together(flows: Server, tmp_path: Path) -> None:
    reply = run(flows, "fork", {"dir": str(tmp_path)}).json()
    assert {name: answer["seen"] for name, answer in reply.items()} == {
        "left": ["first", "left"],
        "right": ["first", "right"],
    }


def test_a_node_that_fails_once_is_tried_again(flows: Server, tmp_path: Path) -> None:
    reply = run(flows, "line", {"dir": str(tmp_path), "do": {"last": ["fail-once"]}})
    assert reply.status_code == 200
    assert (tmp_path / "last.1").exists() and not (tmp_path / "last.2").exists()


def test_a_node_that_keeps_failing_ends_the_request_and_is_named(flows: Server, tmp_path: Path) -> None:
    reply = run(flows, "line", {"dir": str(tmp_path), "do": {"first": ["fail"]}})
    assert (reply.status_code, reply.json()["type"]) == (500, "InternalServerException")
    assert reply.json()["message"] == "Error executing first: Prediction failed (2 attempts)"
    assert not list(tmp_path.glob("last.*"))


def test_a_node_that_takes_too_long_is_given_up(flows: Server, tmp_path: Path) -> None:
    reply = run(flows, "hasty", {"dir": str(tmp_path), "do": {"first": ["wait", "go"]}})
    (tmp_path / "go").touch()
    assert reply.status_code == 500 and "no answer within 300 ms" in reply.json()["message"]


def test_a_node_that_blames_the_client_is_not_tried_again(flows: Server, tmp_path: Path) -> None:
    reply = run(flows, "line", {"dir": str(tmp_path), "do": {"last": ["refuse"]}})
    assert (reply.status_code, reply.json()["message"]) == (422, "not with this input")
    assert not (tmp_path / "last.1").exists()


def test_the_deadline_travels(flows: Server, tmp_path: Path) -> None:
    held = later(lambda: run(flows, "line", {"dir": str(tmp_path), "do": {"first": ["wait", "go"]}}))
    until(lambda: (tmp_path / "first.0").exists(), "the only worker of the first node is busy")
    late = run(flows, "line", {"dir": str(tmp_path)}, **{"x-jitney-timeout-ms": "200"})
    assert (late.status_code, late.json()["type"]) == (408, "RequestTimeoutException")
    (tmp_path / "go").touch()
    assert held.result().status_code == 200


def test_a_client_that_leaves_takes_the_rest_of_the_walk_along(flows: Server, tmp_path: Path) -> None:
    order = {"dir": str(tmp_path), "do": {"first": ["wait", "go"]}}
    with socket.create_connection(flows.address) as leaving:
        leaving.sendall(request("/wfpredict/line", json.dumps(order).encode(), "Content-Type: application/json"))
        until(lambda: (tmp_path / "first.0").exists(), "the first node is called")
    (tmp_path / "go").touch()
    # The only worker of the first node takes this one when it is done with the other.
    assert run(flows, "line", {"dir": str(tmp_path)}).status_code == 200
    assert (tmp_path / "first.1").exists() and not (tmp_path / "last.1").exists()


def test_workflows_are_described_and_listed(flows: Server) -> None:
    (described,) = flows.manage("GET", "/workflows/line").json()
    assert described == {
        "workflowName": "line", "workflowUrl": "line.war", "minWorkers": 1, "maxWorkers": 1, "batchSize": 1,
        "maxBatchDelay": 50, "workflowDag": "{first=[middle], middle=[last]}",
    }  # fmt: skip
    page = flows.manage("GET", "/workflows", limit=2).json()
    assert [entry["workflowName"] for entry in page["workflows"]] == ["diamond", "fork"]
    assert page["nextPageToken"] == "2"


def test_models_of_a_workflow_are_listed_and_functions_are_not(flows: Server) -> None:
    assert "line__middle" in names(flows) and "line__first" not in names(flows)
    described = flows.describe("line__first")
    assert (described["workers"][0]["status"], described["maxBatchDelay"]) == ("READY", 0)
    assert "modelUrl" not in described, "a function comes from no archive of its own"


@pytest.mark.parametrize(
    ("spec", "status", "kind", "words"),
    [
        ("dag: {first: [last], last: [first]}", 400, "InvalidDAGException", "cycle through first, last"),
        ("dag: {first: [join], last: [join]}", 400, "InvalidDAGException", "exactly one start node"),
        ("models: {bach-size: 3}\ndag: {first: }", 400, "InvalidDAGException", '"bach-size"'),
        (
            "dag: {first: [missing]}",
            500,
            "WorkflowException",
            "Failed to start workers for model broken__missing version: 1.0",
        ),
        (
            "models: {m: {url: no.mar}}\ndag: {first: [m]}",
            500,
            "WorkflowException",
            "Workflow Node broken__m failed to register. Details: Model not found at: no.mar",
        ),
        ("dag: [", 400, "InvalidWorkflowException", "workflow.yaml"),
    ],
)
def test_what_cannot_be_registered_leaves_nothing(flows: Server, spec: str, status: int, kind: str, words: str) -> None:
    reply = register(flows, flows.store.war("broken", spec, "steps"))
    assert (reply.status_code, reply.json()["type"]) == (status, kind), reply.text
    assert words in reply.json()["message"]
    assert flows.manage("GET", "/workflows/broken").status_code == 404
    assert flows.manage("GET", "/models/broken__first").status_code == 404
    good = register(flows, flows.store.war("broken", "dag: {first: }", "steps"))
    assert good.status_code == 200, good.text
    assert flows.manage("DELETE", "/workflows/broken").status_code == 200


def test_a_request_under_way_is_answered_before_its_workflow_goes(flows: Server, tmp_path: Path) -> None:
    assert register(flows, "line.war", workflow_name="leaving").status_code == 200
    order = {"dir": str(tmp_path), "do": {"first": ["wait", "go"]}}

    def remove() -> requests.Response:
        until(lambda: (tmp_path / "first.0").exists(), "the first node is called")
        return flows.manage("DELETE", "/workflows/leaving")

    def release() -> None:
        until(lambda: flows.manage("GET", "/workflows/leaving").status_code == 404, "the workflow is hidden")
        assert register(flows, "line.war", workflow_name="leaving").status_code == 409
        (tmp_path / "go").touch()

    answer, removed, _ = together([lambda: run(flows, "leaving", order), remove, release])
    assert (answer.status_code, removed.status_code) == (200, 200), answer.text
    assert removed.json() == {"status": 'Workflow "leaving" unregistered'}
    assert not [name for name in names(flows) if name.startswith("leaving__")]
    assert flows.manage("GET", "/models/leaving__first").status_code == 404


def test_a_server_that_ends_lets_a_walk_come_to_its_end(
    start: Callable[..., Server], store: Store, tmp_path: Path
) -> None:
    store.mar("middle", "echo")
    server = start("serve", store.mar("echo"), "--model-store", store.path)
    assert register(server, store.war("line", LINE, "steps")).status_code == 200
    order = {"dir": str(tmp_path), "do": {"first": ["wait", "go"]}}

    def end() -> int:
        until(lambda: (tmp_path / "first.0").exists(), "the first node is called")
        server.terminate()
        server.logged("draining")
        (tmp_path / "go").touch()
        return server.wait()

    answer, code = together([lambda: run(server, "line", order), end])
    assert (answer.status_code, code) == (200, 0), answer.text


def test_torchserves_users_find_workflows_in_a_store_of_their_own(
    start: Callable[..., Server], binary: Path, store: Store, tmp_path: Path
) -> None:
    workflows = Store(tmp_path / "workflows")
    (tmp_path / "flow.yaml").write_text("dag: {first: [last]}")
    subprocess.run(
        [binary, "archive-workflow", "--workflow-name", "flow", "--spec-file", tmp_path / "flow.yaml",
         "--handler", HANDLERS / "steps.py", "--export-path", workflows.path],
        check=True, timeout=120,
    )  # fmt: skip
    config = tmp_path / "config.properties"
    keys = "disable_token_authorization=true\nenable_model_api=true\nservice_envelope=kserve\n"
    config.write_text(FREE_ADDRESSES + keys)
    server = start("torchserve", "--foreground", "--ncs", "--ts-config", config, "--model-store", store.path,
                   "--workflow-store", workflows.path)  # fmt: skip
    assert register(server, "flow.war").status_code == 200, server.log
    assert run(server, "flow", {"dir": str(tmp_path)}).json()["seen"] == ["first", "last"], (
        "no envelope around functions"
    )
    missing = register(server, "no.war")
    assert (missing.status_code, missing.json()["message"]) == (404, "Workflow not found in workflow store: no.war")
