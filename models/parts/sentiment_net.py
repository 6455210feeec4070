"""The sentiment model: the mean of the vectors of words and word pairs, and a linear layer."""

import torch


class Sentiment(torch.nn.Module):
    """Scores of the classes negative and positive."""

    def __init__(self, words: int = 20000, width: int = 16) -> None:
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(words, width, mode="mean")
        self.head = torch.nn.Linear(width, 2)

    def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Word numbers of all texts, and where each text begins."""
        return self.head(self.embedding(words, offsets))
