"""Why a model runs without graphs."""


class CannotCapture(Exception):
    """The model cannot be captured; the text says why, as the end of a sentence."""
