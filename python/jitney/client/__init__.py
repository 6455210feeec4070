"""Clients over HTTP: `Client` for programs with threads, `AsyncClient` for event loops.

Both share their requests (`requests`), replies and retries (`retry`) and steps (`methods`); they differ
in how bytes move. Nothing but the standard library is needed.
"""

from jitney.client.aio import AsyncClient
from jitney.client.retry import Retry
from jitney.client.sync import Client

__all__ = ["AsyncClient", "Client", "Retry"]
