"""Handles: models of a server as Python objects whose calls return futures.

`running` has what `jitney.connect` and `jitney.run` give, `handle` one model of it, `launch` is `jitney.run`. Below
them `connection` moves frames on an event loop, the caller's own or one in a thread of ours;
`frames` are their bytes, `futures` and `streams` what a caller holds meanwhile.
"""

from jitney.handle.handle import Handle
from jitney.handle.job import Job
from jitney.handle.launch import run
from jitney.handle.running import RunningModel, Session, connect
from jitney.handle.streams import AsyncCall, AsyncStream, Call, Stream

__all__ = ["AsyncCall", "AsyncStream", "Call", "Handle", "Job", "RunningModel", "Session", "Stream", "connect", "run"]
