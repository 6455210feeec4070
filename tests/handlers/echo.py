"""Gives every request its own body back: the class form, with an `initialize` that must have run."""


class Echo:
    """A handler as TorchServe documents it."""

    def __init__(self):
        self.initialized = False

    def initialize(self, context):
        """Called once per worker."""
        self.model_dir = context.system_properties["model_dir"]
        self.initialized = True

    def handle(self, data, context):
        """One answer per row."""
        assert self.initialized
        return [bytes(value) if isinstance(value, bytearray) else value for value in map(only_value, data)]


def only_value(row):
    """The body, or the form field that stands for it."""
    return row.get("body", row.get("data"))
