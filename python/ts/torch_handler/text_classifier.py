"""Stock handler `text_classifier`: the class of a text, for models over bags of words and word pairs.

TorchServe answers only the first request of a batch; here every one is answered.
"""

from __future__ import annotations

from typing import Any

from ts.torch_handler.base_handler import torch
from ts.torch_handler.profiling import timed
from ts.torch_handler.rows import text_of
from ts.torch_handler.text_handler import TextHandler
from ts.torch_handler.text_steps import with_ngrams
from ts.utils.util import PredictionException, map_class_to_label


class TextClassifier(TextHandler):
    """Cleans a text, numbers its words and word pairs, and calls `model(numbers, offsets)`."""

    ngrams = 2

    @timed
    def preprocess(self, data: Any) -> Any:
        """The numbers and the text of a request; two lists of them for several requests."""
        numbered = [self._numbers(text_of(row)) for row in data]
        if len(numbered) == 1:
            return numbered[0]
        return [numbers for numbers, _ in numbered], [text for _, text in numbered]

    def _numbers(self, text: str) -> tuple[Any, str]:
        text = self._remove_html_tags(text).lower()
        for step in (self._expand_contractions, self._remove_accented_characters, self._remove_punctuation):
            text = step(text)
        found = (self.number_of(word) for word in with_ngrams(self._tokenize(text), self.ngrams))
        numbers = [number for number in found if number is not None]
        return torch.as_tensor(numbers, dtype=torch.long, device=self.device), text

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """One row of scores per text."""
        numbers = data[0] if isinstance(data[0], list) else [data[0]]
        lengths = [len(one) for one in numbers[:-1]]
        offsets = torch.as_tensor([0, *lengths], device=self.device).cumsum(0)
        return super().inference(torch.cat(numbers), offsets, *args, **kwargs)

    @timed
    def postprocess(self, data: Any) -> Any:
        """Every class with its probability."""
        likely = torch.nn.functional.softmax(data, dim=1).tolist()
        return map_class_to_label(likely, self.mapping)

    def get_insights(self, text_preprocess: Any, _: Any, target: Any = 0) -> Any:
        """How much each word contributed to the target class."""
        if self.lig is None:
            message = "explanations need captum in the workers' Python and a model with a layer `embedding`"
            raise PredictionException(message, 501)
        numbers, text = text_preprocess
        if isinstance(numbers, list):
            return [insight for pair in zip(numbers, text) for insight in self.get_insights(pair, _, target)]
        offsets = torch.as_tensor([0], device=self.device)
        attributions = self.lig.attribute(numbers, target=target, additional_forward_args=(offsets,))
        return [{"words": list(with_ngrams(self._tokenize(text), self.ngrams)),
                 "importances": self.summarize_attributions(attributions).tolist()}]  # fmt: skip
