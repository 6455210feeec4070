"""The documented shapes that many tests look for: error bodies and timings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

TIMING = re.compile(
    r"queue;dur=(?P<queue>\d+\.\d{3}), compute;dur=(?P<compute>\d+\.\d{3}), "
    r'batch;desc="(?P<size>\d+) of (?P<max>\d+), (?P<reason>[a-z]+)(, attempt (?P<attempt>\d+))?"'
)


def assert_problem(reply: Any, status: int, kind: str, *words: str) -> None:
    """The answer is `{code, type, message}` with this status and type, and its message has these words."""
    assert reply.status_code == status, f"{reply.status_code}: {reply.text}"
    assert reply.headers["content-type"] == "application/json"
    problem = reply.json()
    # Clients of KServe's protocols look for the text elsewhere.
    assert problem.pop("error", problem["message"]) == problem["message"]
    # Under `jitney serve` the body names the request as its header does.
    own = problem.pop("requestId", None)
    assert own is None or own == reply.headers["x-request-id"]
    assert list(problem) == ["code", "type", "message"], problem
    assert (problem["code"], problem["type"]) == (status, kind), problem
    for word in words:
        assert word in problem["message"], problem


@dataclass
class Timing:
    """What `Server-Timing` says about a timing."""

    queue: float
    compute: float
    size: int
    max: int
    reason: str
    attempt: int


def timing_of(reply: Any) -> Timing:
    """Reads an answer's timing; its form is part of the contract."""
    text = reply.headers["server-timing"]
    found = TIMING.fullmatch(text)
    assert found, f"not a timing: {text}"
    return Timing(
        float(found["queue"]),
        float(found["compute"]),
        int(found["size"]),
        int(found["max"]),
        found["reason"],
        int(found["attempt"] or 1),
    )
