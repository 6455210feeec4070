"""Fixtures of the black-box tests: the real binary, servers that are always ended, archives.

The binary comes in JITNEY_BIN. Nothing here skips when it is missing: the run fails and says so.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness import packages
from harness.archives import Store
from harness.package import jitney
from harness.server import Server

HEAVY_FILE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.heavy\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--heavy` adds the long runs."""
    parser.addoption("--heavy", action="store_true", help="also run the long load tests")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker of the long runs."""
    config.addinivalue_line("markers", "heavy: takes minutes; runs with --heavy only")
    config.addinivalue_line("markers", "torch: needs torch, which `make setup` installs; runs in `make test-torch`")
    # Nothing of the user's: neither what `jitney onnx install` brought, nor settings, nor caches.
    os.environ["HOME"] = tempfile.mkdtemp(prefix="home-")
    packages.keep()
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    # The interpreter of the tests, and not a shim that looks for another one in the user's home.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # What the tests start writes no byte code, and so must find that of the libraries beside them: otherwise every
    # worker compiles them anew.
    os.environ.pop("PYTHONPYCACHEPREFIX", None)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def pytest_unconfigure() -> None:
    """Removes the home again."""
    shutil.rmtree(os.environ["HOME"], ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even read files of which every test is a long run, unless these were asked for or the file was named."""
    if config.getoption("--heavy") or collection_path.suffix != ".py":
        return None
    named = any(Path(one.partition("::")[0]).name == collection_path.name for one in config.args)
    return None if named or not HEAVY_FILE.search(collection_path.read_text()) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what needs torch where there is none, and leaves the long runs out unless they were asked for."""
    for item in items:
        if item.get_closest_marker("torch") and find_spec("torch") is None:
            item.add_marker(pytest.mark.skip(reason="NO TORCH HERE (make setup, make test-torch)"))
    if config.getoption("--heavy"):
        return
    heavy = [item for item in items if item.get_closest_marker("heavy")]
    config.hook.pytest_deselected(items=heavy)
    items[:] = [item for item in items if item not in heavy]


@pytest.fixture(scope="session")
def binary() -> Path:
    """The program under test."""
    path = Path(os.environ.get("JITNEY_BIN", ""))
    if not path.is_file():
        pytest.fail(f"JITNEY_BIN must name the jitney binary; it is {str(path)!r} (see `make test-blackbox`)")
    return path.resolve()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty model store of the test's own."""
    return Store(tmp_path / "store")


@pytest.fixture
def start(binary: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers for one test; afterwards they are ended and searched for orphans."""
    servers: list[Server] = []

    def start(*arguments: str | Path, **options: object) -> Server:
        server = Server(binary, tmp_path / f"server-{len(servers)}", arguments, **options)
        servers.append(server)
        return server.started()

    yield start
    for server in servers:
        server.end()


@pytest.fixture
def sagemaker(start: Callable[..., Server], tmp_path: Path) -> Callable[..., Server]:
    """Starts what the container's `serve` starts, with this base folder and these variables."""

    def sagemaker(base: Path, *flags: str, **variables: str) -> Server:
        env = {"SAGEMAKER_BASE_DIR": str(base), "SAGEMAKER_MODEL_SERVER_WORKERS": "1", **variables}
        return start("serve", "--host", "127.0.0.1", *flags, env=env)

    return sagemaker


@pytest.fixture(scope="module")
def shared(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a file: it has the model `echo` and a store to register from."""
    home = tmp_path_factory.mktemp("shared")
    store = Store(home / "store")
    server = Server(binary, home / "server", ["serve", store.mar("echo"), "--model-store", store.path], store=store)
    yield server.started()
    server.end()


@pytest.fixture(scope="module")
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a file's definitions: its APP as app.py."""
    home = tmp_path_factory.mktemp(request.module.__name__)
    (home / "app.py").write_text(request.module.APP)
    return home


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, binary: Path, home: Path) -> Iterator[Server]:
    """One server for the tests of a file, with the definitions that its MODELS name."""
    server = Server(binary, home / "server", ["serve", *request.module.MODELS], cwd=home)
    yield server.started()
    server.end()


@pytest.fixture
def session(served: Server) -> Iterator[jitney.Session]:
    """A connection to that server for handles."""
    with jitney.connect(served.urls["inference"]) as session:
        yield session
