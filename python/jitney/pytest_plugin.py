"""The fixture `jitney_server` for tests with pytest, which finds this file by itself where the package is installed.

It is for tests against a real server; `jitney.testing` needs none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jitney import RunningModel


@pytest.fixture(scope="module")
def jitney_server() -> Iterator[Callable[..., RunningModel[..., Any]]]:
    """Starts servers on free ports: `jitney_server(Shop)` takes what `jitney.run` takes and returns what it returns.
    They end with the tests of the file."""
    import jitney  # Only where the fixture is used.

    with contextlib.ExitStack() as servers:
        yield lambda target, **options: servers.enter_context(jitney.run(target, **options))
