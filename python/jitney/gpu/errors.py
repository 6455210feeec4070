"""Why a model runs without graphs, or is not compiled. The texts are the ends of sentences."""


class CannotCapture(Exception):
    """The model cannot be captured."""


class CannotCompile(Exception):
    """The model cannot be compiled."""
