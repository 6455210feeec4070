"""A sentence in, its vector of 384 numbers out; sentences of a batch are padded to the longest of them."""

import os

import torch
from wordpiece import WordPiece

from ts.torch_handler.base_handler import BaseHandler


class SentenceHandler(BaseHandler):
    """Text as the body, as the field `data`, or as a JSON string."""

    def initialize(self, context):
        """Also reads the vocabulary."""
        super().initialize(context)
        self.tokenizer = WordPiece(os.path.join(context.system_properties["model_dir"], "vocab.txt"))

    def preprocess(self, data):
        """Token numbers and mask, both [N, L]."""
        texts = [row.get("data") or row.get("body") or "" for row in data]
        texts = [text.decode() if isinstance(text, (bytes, bytearray)) else str(text) for text in texts]
        rows = [torch.tensor(self.tokenizer(text)) for text in texts]
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        return tokens.to(self.device), mask.to(self.device)

    def inference(self, data):
        """[N, 384]."""
        return super().inference(*data)
