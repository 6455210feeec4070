"""The servers that are compared, one module for each."""

from __future__ import annotations

from .bare import BareLoop
from .base import Ask, Server, Site
from .bentoml import BentoML
from .jitney import JITNEY, JITNEY_TRITON
from .litserve import LitServe
from .mosec import Mosec
from .ray import RayServe
from .torchserve import TorchServe
from .triton import Triton

PEERS: tuple[Server, ...] = (Mosec(), TorchServe(), Triton(), LitServe(), BentoML(), RayServe())
SERVERS: dict[str, Server] = {one.name: one for one in (*JITNEY, JITNEY_TRITON, *PEERS, BareLoop())}

__all__ = ["JITNEY", "PEERS", "SERVERS", "Ask", "Server", "Site"]
