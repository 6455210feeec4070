"""What a model is called with, seen as rows: its tensors, how many rows they have, and how long these are.

Why a model runs without graphs, or is not compiled, is an error of here; the texts are the ends of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jitney.gpu.trees import rebuilt, structure_of, tensors_of, torch


class ModelInput:
    """The arguments of one call. Every tensor has one row per item; with `ragged` also a second dimension of lengths.

    Of tensors with two dimensions or more, those are ragged whose second one is that of the first such tensor.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], ragged: bool = False) -> None:
        self.value = (args, kwargs)
        self.tensors = tensors_of(self.value)
        self.count: int | None = None
        if self.tensors and all(tensor.dim() and len(tensor) == len(self.tensors[0]) for tensor in self.tensors):
            self.count = len(self.tensors[0])
        long = [tensor for tensor in self.tensors if tensor.dim() > 1] if ragged else []
        self.length: int | None = long[0].shape[1] if long else None

    def is_ragged(self, tensor: Any) -> bool:
        """Whether the second dimension of a tensor is one of lengths."""
        return self.length is not None and tensor.dim() > 1 and tensor.shape[1] == self.length

    def signature(self) -> Any:
        """What inputs have in common that one graph serves, but for rows and lengths; None if nothing can."""
        if self.count is None:
            return None
        shapes = tuple(
            (
                tensor.is_floating_point(),
                self.is_ragged(tensor),
                tuple(tensor.shape[2 if self.is_ragged(tensor) else 1 :]),
            )
            for tensor in self.tensors
        )
        signature = (structure_of(self.value), shapes)
        try:
            hash(signature)
        except TypeError:  # An argument of a kind that nobody can compare.
            return None
        return signature

    def with_tensors(self, tensors: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments with other tensors."""
        left = iter(tensors)
        args, kwargs = rebuilt(self.value, lambda _: next(left))
        return args, kwargs

    def room(self, size: int, length: int | None) -> list[Any]:
        """Tensors of zeros like these, for so many rows of such a length, in the same memory format."""
        return [self._room_for(tensor, size, length) for tensor in self.tensors]

    def _room_for(self, tensor: Any, size: int, length: int | None) -> Any:
        shape = [size, *tensor.shape[1:]]
        if length is not None and self.is_ragged(tensor):
            shape[1] = length
        layout = torch.contiguous_format
        if tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
            layout = torch.channels_last
        return torch.empty(shape, dtype=tensor.dtype, device=tensor.device, memory_format=layout).zero_()

    def copy_into(self, room: list[Any]) -> None:
        """Writes the rows into the first ones of larger tensors; what lengths leave free is zeros."""
        for tensor, target in zip(self.tensors, room):
            if self.is_ragged(tensor) and target.shape[1] != self.length:
                target[: self.count, : self.length].copy_(tensor)
                target[: self.count, self.length :].zero_()
            else:
                target[: self.count].copy_(tensor)

    def sample_into(self, room: list[Any]) -> None:
        """Fills larger tensors with the first row, as it is, and fainter from row to row."""
        for tensor, target in zip(self.tensors, room):
            row = tensor[:1]
            if self.is_ragged(tensor) and target.shape[1] != self.length:
                row = target[:1].clone().zero_()
                kept = min(target.shape[1], self.length or 0)
                row[:, :kept].copy_(tensor[:1, :kept])
            target.copy_(row.expand_as(target))
            if target.is_floating_point():
                faint = torch.linspace(1.0, 0.5, len(target), device=target.device).to(target.dtype)
                target.mul_(faint.view(-1, *[1] * (target.dim() - 1)))

    def shortened(self, lengths: Sequence[int]) -> ModelInput | None:
        """The first row, cut so that it has to be padded to one of the lengths; None if it is too short for that."""
        for length in range(min(self.length or 0, lengths[-1]) - 1, 0, -1):
            if length not in lengths:
                cut = [tensor[:1, :length] if self.is_ragged(tensor) else tensor[:1] for tensor in self.tensors]
                return ModelInput(*self.with_tensors(cut), ragged=True)
        return None

    def check(self) -> None:
        """Raises where there are no rows to speak of."""
        if not self.tensors:
            raise CannotCapture("the model is given no tensors")
        if self.signature() is None:
            raise CannotCapture("what the model is given does not have one row per item")


class CannotCapture(Exception):
    """The model cannot be captured."""


class CannotCompile(Exception):
    """The model cannot be compiled."""
