"""Which handlers load, which do not, and what the server gets."""

from __future__ import annotations

import os

import pytest
import wire

ECHO_CLASS = """
    class Echo:
        def handle(self, data, context):
            return ["class" for _ in data]
"""
FUNCTION = """
    STATE = []

    def handle(data, context):
        if data is None:
            STATE.append(context.model_name)
            return None
        return [f"function {STATE}" for _ in data]

    def other(data, context):
        return ["other" for _ in data or ()]
"""


def body_of(worker):
    (item,) = worker.ask(wire.bodies(b"x"))
    return item["body"].decode()


@pytest.mark.parametrize(
    "handler, source, expected",
    [
        ("handler.py", FUNCTION, "function ['m']"),
        ("handler", FUNCTION, "function ['m']"),
        ("somewhere/else/handler.py", FUNCTION, "function ['m']"),
        ("handler.py:other", FUNCTION, "other"),
        ("handler:other", FUNCTION, "other"),
        ("handler:handle", FUNCTION, "function ['m']"),
        ("handler.py", ECHO_CLASS, "class"),
    ],
)
def test_every_form_of_handler_loads(worker, handler, source, expected):
    assert body_of(worker(source, handler)) == expected


def test_a_handler_in_a_folder_of_the_model_is_found_there(raw_worker, model):
    model("def handle(data, context):\n    return ['root' for _ in data or ()]\n", "mod.py")
    model("import side\ndef handle(data, context):\n    return [side.NAME for _ in data or ()]\n", "src/mod.py")
    model_dir = model("NAME = 'beside'\n", "src/side.py")
    worker = raw_worker()
    worker.load(model_dir, "src/mod.py")
    worker.read_control(wire.LOADED)
    assert body_of(worker) == "beside"


def test_a_module_inside_a_package_loads(raw_worker, model):
    model("", "pack/__init__.py")
    model_dir = model("def handle(data, context):\n    return ['packed' for _ in data or ()]\n", "pack/mod.py")
    worker = raw_worker()
    worker.load(model_dir, "pack.mod")
    worker.read_control(wire.LOADED)
    assert body_of(worker) == "packed"


def test_a_class_is_made_once_and_initialized_once_with_the_context(worker):
    one = worker("""
        class Counting:
            def __init__(self):
                self.seen = []
            def initialize(self, context):
                self.seen.append(context.system_properties["gpu_id"])
            def handle(self, data, context):
                return [self.seen for _ in data]
    """, gpu_id=3)  # fmt: skip
    assert body_of(one) == body_of(one) == "[\n  3\n]"


def test_imported_classes_do_not_count(worker):
    source = (
        "from collections import OrderedDict\nfrom ts.context import Context\n"
        """
class Only:
    def handle(self, data, context):
        return [str(isinstance(context, Context)) for _ in data]
"""
    )
    assert body_of(worker(source)) == "True"


def test_the_model_directory_is_the_working_directory_and_importable(worker, model):
    model("VALUE = 'side module'", "side.py")
    one = worker("""
        import os
        import side

        def handle(data, context):
            return [f"{os.getcwd()} {side.VALUE}" for _ in data or ()]
    """)
    assert body_of(one) == f"{os.path.realpath(os.getcwd())} side module"


def test_a_stock_handler_is_the_fallback(raw_worker, model, monkeypatch):
    import sys
    import types

    package, stock = types.ModuleType("ts.torch_handler"), types.ModuleType("ts.torch_handler.stocky")
    package.__path__ = []
    stock.handle = lambda data, context: ["stock" for _ in data or ()]
    monkeypatch.setitem(sys.modules, "ts.torch_handler", package)
    monkeypatch.setitem(sys.modules, "ts.torch_handler.stocky", stock)
    worker = raw_worker()
    worker.load(model(""), "stocky")
    worker.read_control(wire.LOADED)
    assert body_of(worker) == "stock"


def initialize_raising(error):
    return f"class Bad:\n    def initialize(self, context):\n        raise {error}\n    def handle(self, d, c): pass\n"


@pytest.mark.parametrize(
    "source, cause, message",
    [
        (initialize_raising("RuntimeError('cannot load')"), "runtime", "RuntimeError: cannot load"),
        (initialize_raising("MemoryError('no room')"), "memory", "MemoryError: no room"),
        (initialize_raising("RuntimeError('CUDA error: out of memory')"), "memory", "CUDA error"),
        (initialize_raising("ValueError('bad value')"), "error", "ValueError: bad value"),
        ("def handle(data, context)\n    pass\n", "error", "SyntaxError"),
        ("class A:\n    pass\nclass B(A):\n    pass\n", "error", "Expected only one class in custom service code"),
        ("x = 1\n", "error", "Expected only one class in custom service code"),
        ("class A:\n    pass\n", "error", "Expect handle method in class"),
        ("import missing_dependency\n", "error", "No module named 'missing_dependency'"),
        ("from json import nothing_here\n", "error", "cannot import name 'nothing_here'"),
        ("def handle(data, context):\n    raise ValueError('in init')\n", "error", "ValueError: in init"),
    ],
)
def test_a_failed_load_says_why_with_its_traceback_and_ends(raw_worker, model, source, cause, message):
    worker = raw_worker()
    worker.load(model(source), "handler.py")
    failure = worker.read_control(wire.LOAD_FAILED)
    assert failure["cause"] == cause and message in failure["message"]
    assert worker.ended() and worker.end() == 1
    assert failure["traceback"].startswith("Traceback") and message in failure["traceback"]


def test_a_handler_that_is_nowhere_is_named_in_the_failure(raw_worker, model):
    worker = raw_worker()
    worker.load(model(""), "ghost.py")
    failure = worker.read_control(wire.LOAD_FAILED)
    assert failure["cause"] == "error" and "'ghost'" in failure["message"]


def test_an_unknown_envelope_is_rejected_with_the_known_ones(raw_worker, model):
    worker = raw_worker()
    worker.load(model(ECHO_CLASS), "handler.py", envelope="kserv")
    message = worker.read_control(wire.LOAD_FAILED)["message"]
    assert "envelope 'kserv'" in message and "kservev2" in message


def test_the_time_a_load_took_is_reported(raw_worker, model):
    worker = raw_worker()
    worker.load(model(ECHO_CLASS), "handler.py")
    assert worker.read_control(wire.LOADED)["seconds"] > 0
