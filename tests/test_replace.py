"""A model in the place of another: over HTTP, from the command line, and when its files change."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.archives import Store
from harness.client import later
from harness.server import ASK_SECONDS, Server
from harness.wait import until

ANSWER = 'def handle(data, context):\n    return data and ["{0}"] * len(data)\n'
PATIENT = """
import os
import pathlib
import time

pathlib.Path(os.environ["ARRIVED"]).touch()
while not os.path.exists(os.environ["OPENED"]):
    time.sleep(0.01)

def handle(data, context):
    return data and ["new"] * len(data)
"""
"""Loads when the test lets it."""
BROKEN = "import nosuchpkg\n"


@pytest.fixture
def gate(tmp_path: Path) -> dict[str, Path]:
    return {"ARRIVED": tmp_path / "arrived", "OPENED": tmp_path / "opened"}


def serve(start: Callable[..., Server], store: Store, *flags: Any, **options: Any) -> Server:
    archive = store.mar("m", source=ANSWER.format("old"))
    return start("serve", archive, "--model-store", store.path, *flags, **options)


def replace(server: Server, way: str = "true", **query: Any) -> requests.Response:
    return server.manage("POST", "/models", url="m.mar", replace=way, **query)


def answer(server: Server) -> str:
    reply = server.predict("m", b"x")
    assert reply.status_code == 200, reply.text
    return reply.text


def versions(server: Server) -> list[str]:
    return [model["version"] for model in server.manage("GET", "/overview").json()["models"]]


def test_the_old_one_answers_until_the_new_one_is_ready(
    start: Callable[..., Server], store: Store, gate: dict[str, Path]
):
    server = serve(start, store, "--workers", "2", env={name: str(path) for name, path in gate.items()})
    store.mar("m", source=PATIENT)
    replacing = later(lambda: replace(server))
    until(gate["ARRIVED"].exists, "the new one loads")
    assert {answer(server) for _ in range(20)} == {"old"}
    gate["OPENED"].touch()
    told = replacing.result()
    assert (told.status_code, told.json()["status"]) == (200, 'Model "m" Version: 1.0 replaced')
    assert {answer(server) for _ in range(20)} == {"new"}
    assert len(server.ready("m")) == 2, "it has as many workers"
    assert versions(server) == ["1.0"]


def test_another_version_takes_the_place_of_the_default_one(start: Callable[..., Server], store: Store):
    server = serve(start, store)
    store.mar("m", source=ANSWER.format("new"), version="2.0")
    assert replace(server).status_code == 200
    assert answer(server) == "new"
    until(lambda: versions(server) == ["2.0"], "the old version has gone")


def test_one_that_does_not_load_changes_nothing(start: Callable[..., Server], store: Store):
    server = serve(start, store)
    store.mar("m", source=BROKEN)
    refused = replace(server)
    assert refused.status_code >= 400 and "nosuchpkg" in refused.text, refused.text
    assert answer(server) == "old" and versions(server) == ["1.0"]
    unreadable = server.manage("POST", "/models", url="nothing.mar", replace="true")
    assert unreadable.status_code == 404, unreadable.text
    assert answer(server) == "old"


def test_without_replace_a_version_is_a_conflict_and_a_wrong_word_is_explained(
    start: Callable[..., Server], store: Store
):
    server = serve(start, store)
    conflict = server.manage("POST", "/models", url="m.mar")
    assert (conflict.status_code, "already registered" in conflict.text) == (409, True), conflict.text
    wrong = replace(server, "gently")
    assert (wrong.status_code, "replace must be true" in wrong.text) == (400, True), wrong.text


def test_a_model_that_is_not_there_is_registered(start: Callable[..., Server], store: Store):
    server = start("serve", store.mar("echo"), "--model-store", store.path)
    store.mar("m", source=ANSWER.format("new"))
    assert replace(server, initial_workers=1).status_code == 200
    assert answer(server) == "new"


def test_without_memory_for_both_the_old_one_ends_first_where_that_is_asked_for(
    start: Callable[..., Server], store: Store, gate: dict[str, Path]
):
    env = {name: str(path) for name, path in gate.items()}
    server = serve(start, store, "--memory", "10MiB", env=env)
    store.mar("m", source=PATIENT)
    refused = replace(server)
    assert refused.status_code == 507 and "With replace=stop the old one ends first" in refused.text, refused.text
    assert answer(server) == "old"
    replacing = later(lambda: replace(server, "stop"))
    until(gate["ARRIVED"].exists, "the new one loads, so the old one has gone")
    waiting = later(lambda: answer(server))
    gate["OPENED"].touch()
    assert waiting.result() == "new", "who comes meanwhile waits for it"
    assert replacing.result().status_code == 200


def test_the_command_replaces(start: Callable[..., Server], store: Store):
    server = serve(start, store)
    store.mar("m", source=ANSWER.format("new"))
    line = [str(server.binary), "register", "m.mar", "--replace", "--url", server.urls["management"]]
    told = subprocess.run(line, env=server.env, capture_output=True, text=True, timeout=ASK_SECONDS)
    assert told.returncode == 0 and "replaced" in told.stdout, told.stderr
    assert answer(server) == "new"


def test_a_watched_archive_is_replaced_when_it_changes(start: Callable[..., Server], store: Store):
    server = serve(start, store, "--watch")
    seen = {answer(server)}
    store.mar("m", source=BROKEN)
    server.logged("was not loaded, the old one stays")
    seen.add(answer(server))
    assert seen == {"old"}
    store.mar("m", source=ANSWER.format("new"), version="1.1")
    until(lambda: answer(server) == "new", "the new one answers")
    until(lambda: versions(server) == ["1.1"], "the old one has gone")


def test_a_watched_folder_is_replaced_when_a_file_in_it_changes(start: Callable[..., Server], store: Store):
    folder = store.directory("m", source=ANSWER.format("old"))
    server = start("serve", folder, "--watch")
    assert answer(server) == "old"
    [handler] = [path for path in folder.glob("*.py") if "old" in path.read_text()]
    handler.write_text(ANSWER.format("new"))
    until(lambda: answer(server) == "new", "the new code answers")
