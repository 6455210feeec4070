"""Clients over HTTP: `Client` for programs with threads, `AsyncClient` for event loops.

Both share their requests, replies and retries (`requests`) and steps (`methods`); they differ
in how bytes move. Nothing but the standard library is needed.
"""

from jitney.client.aio import AsyncClient
from jitney.client.requests import Retry
from jitney.client.sync import Client

__all__ = ["AsyncClient", "Client", "Retry"]
