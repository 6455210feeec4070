"""A call that is answered later: what `handle.submit` returns."""

from __future__ import annotations

from typing import Generic

from jitney.client import Client
from jitney.definition.decorators import R


class Job(Generic[R]):
    """A job of a server. It needs nothing but its id, so it can be found again by another program."""

    def __init__(self, client: Client, job_id: str) -> None:
        self._client = client
        self.id = job_id
        """Its name on the server: `GET /jobs/{id}`."""

    def state(self) -> str:
        """How far it is: `queued`, `running`, `succeeded`, `failed` or `cancelled`."""
        return str(self._client.job(self.id)["state"])

    def wait(self) -> str:
        """Waits until it has ended; returns its state then."""
        return str(self._client.wait(self.id)["state"])

    def result(self) -> R:
        """Waits until it has ended; returns what the call would have returned, or raises what it would have."""
        answer: R = self._client.result(self.id)
        return answer

    def cancel(self) -> None:
        """Ends it, whether it waits or runs, and forgets it with its result."""
        self._client.delete_job(self.id)

    def __repr__(self) -> str:
        return f"<jitney.Job {self.id}>"
