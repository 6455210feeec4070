"""How the next token is chosen: each text of a step has its own terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jitney.call.errors import BadInput
from jitney.gpu.device import find_torch

SEED_MAX = 2**63 - 1


@dataclass(frozen=True)
class Sampling:
    """The terms of one text."""

    temperature: float = 0.0
    """0 takes the best token."""
    top_k: int = 0
    """Of the so many best; 0 means of all."""
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        bounds = {
            "temperature": (0.0, 100.0),
            "top_k": (0, 2**31),
            "top_p": (0.0, 1.0),
            "repetition_penalty": (0.01, 100.0),
            "frequency_penalty": (-2.0, 2.0),
            "presence_penalty": (-2.0, 2.0),
            "seed": (-SEED_MAX, SEED_MAX),
        }
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            kind = int if name in ("top_k", "seed") else (int, float)
            absent = value is None and name == "seed"
            if not absent and (isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most):
                raise BadInput(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")

    @property
    def penalises(self) -> bool:
        """Whether tokens that are there already count for less."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0


@dataclass
class TokenChoice:
    """What choosing a text's next token needs to know of it."""

    terms: Sampling
    prompt: Sequence[int]
    written: Sequence[int]
    generator: Any = None
    """Of a text with a seed."""


def choose(outputs: Any, choices: Sequence[TokenChoice]) -> list[int]:
    """The next token of each text."""
    torch = find_torch()
    with torch.inference_mode():
        if all(one.terms.temperature == 0 and not one.terms.penalises for one in choices):
            best: list[int] = outputs.argmax(-1).tolist()
            return best
        logits = outputs.float().clone()
        for at, one in enumerate(choices):
            if one.terms.penalises:
                logits[at] = penalised(logits[at], one)
        found = logits.argmax(-1)
        drawn = [at for at, one in enumerate(choices) if one.terms.temperature > 0]
        if drawn:
            found[drawn] = sampled(logits[drawn], [choices[at] for at in drawn])
        chosen: list[int] = found.tolist()
        return chosen


def penalised(logits: Any, choice: TokenChoice) -> Any:
    """Outputs in which tokens that are there already count for less."""
    torch = find_torch()
    terms = choice.terms
    if terms.repetition_penalty != 1:
        there = torch.tensor(sorted({*choice.prompt, *choice.written}), device=logits.device)
        old = logits[there]
        logits[there] = torch.where(old > 0, old / terms.repetition_penalty, old * terms.repetition_penalty)
    counts = torch.bincount(
        torch.tensor(choice.written, dtype=torch.int64, device=logits.device), minlength=len(logits)
    )
    return logits - counts * terms.frequency_penalty - (counts > 0) * terms.presence_penalty


def sampled(logits: Any, choices: Sequence[TokenChoice]) -> Any:
    """Tokens drawn by their probabilities, of the best ones."""
    torch = find_torch()
    here = logits.device
    terms = [one.terms for one in choices]
    heat = torch.tensor([one.temperature for one in terms], device=here)[:, None]
    most = torch.tensor([one.top_k or logits.shape[1] for one in terms], device=here)[:, None]
    mass = torch.tensor([one.top_p for one in terms], device=here)[:, None]
    ordered, tokens = (logits / heat).sort(descending=True)
    chances = ordered.softmax(-1)
    before = chances.cumsum(-1) - chances
    first = torch.arange(logits.shape[1], device=here)
    chances = chances.masked_fill(((before >= mass) & (first > 0)) | (first >= most), 0.0)
    noise = torch.empty_like(chances).exponential_()
    for at, one in enumerate(choices):
        if one.generator is not None:
            noise[at].exponential_(generator=one.generator)
    return tokens.gather(1, (chances / noise).argmax(-1)[:, None])[:, 0]
