"""Whether what a captured or compiled model answers is what the model answered before."""

from __future__ import annotations

from typing import Any

from jitney.gpu.trees import structure_of, tensors_of, torch

TOLERANCES = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 1e-3, "float64": 1e-6}
"""Of the largest value of a tensor, by its type."""
LOOSER = 2.0
"""Another way of computing the same may differ so much more than a replay of the same kernels."""


def difference(found: Any, wanted: Any, other_way: bool = False) -> str | None:
    """How two answers differ beyond the tolerance of their precision, in words; None: they do not.

    Values that are not finite must be at the same places, but `other_way`, for another way of computing, may be finite
    where the model overflows.
    """
    if structure_of(found) != structure_of(wanted):
        return "another structure"
    for ours, theirs in zip(tensors_of(found), tensors_of(wanted)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"{tuple(ours.shape)} of {ours.dtype} instead of {tuple(theirs.shape)} of {theirs.dtype}"
        told = _tensors_differ(ours, theirs, other_way)
        if told is not None:
            return told
    return None


def _tensors_differ(ours: Any, theirs: Any, other_way: bool) -> str | None:
    if not theirs.numel():
        return None
    if not theirs.is_floating_point():
        unequal = int((ours != theirs).sum())
        return f"{unequal} of {theirs.numel()} whole numbers differ" if unequal else None
    name = str(theirs.dtype).removeprefix("torch.")
    ours, theirs = ours.float(), theirs.float()
    ours_finite, theirs_finite = torch.isfinite(ours), torch.isfinite(theirs)
    missing = theirs_finite & ~ours_finite if other_way else theirs_finite != ours_finite
    if bool(missing.any()):
        return f"{int(missing.sum())} of {theirs.numel()} values are not finite, or only now"
    if not bool(theirs_finite.any()):
        return None
    largest = float(theirs[theirs_finite].abs().max())
    apart = float((ours - theirs)[theirs_finite].abs().max())
    allowed = TOLERANCES.get(name, TOLERANCES["float32"]) * (LOOSER if other_way else 1.0) * max(largest, 1e-6)
    return None if apart <= allowed else f"values differ by {apart:.3g} where the largest is {largest:.3g}"
