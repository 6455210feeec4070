"""Stands for `torch` where an example of the galleries imports it for a model that cannot be downloaded."""

from __future__ import annotations


class _Model:
    def forward(self, given: object) -> str:
        return "an answer"


class Tensor:
    pass


class cuda:
    @staticmethod
    def is_initialized() -> bool:
        return False


def load(path: str, **options: object) -> _Model:
    return _Model()


def rand(*shape: int) -> list[int]:
    return list(shape)
