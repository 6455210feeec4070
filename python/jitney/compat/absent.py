"""Names that an original has and its layer has not: they can be imported, and say what to do when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn


class NotThere(NotImplementedError):
    """Something of the original that its layer does not have; the message says what to use instead."""


class AbsentName:
    """Stands for such a name. Whatever is done with it fails with its sentence."""

    def __init__(self, name: str, instead: str, error: type[Exception] = NotThere) -> None:
        self._sentence = f"{name} is not there in Jitney's layer: {instead}"
        self._error = error

    def _fail(self) -> NoReturn:
        raise self._error(self._sentence)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._fail()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own questions about an object.
            raise AttributeError(name)
        self._fail()

    def __getitem__(self, key: Any) -> Any:
        self._fail()

    def __repr__(self) -> str:
        return f"<{self._sentence}>"


def absent_names(
    module: str, instead: Mapping[str, str], otherwise: str = "", error: type[Exception] = NotThere
) -> Callable[[str], Any]:
    """The `__getattr__` of a module without these names of the original; `otherwise` is said of any other name."""

    def get(name: str) -> Any:
        if name in instead:
            return AbsentName(f"{module}.{name}", instead[name], error)
        raise AttributeError(f"{module}.{name} is not there in Jitney's layer{otherwise}")

    return get
