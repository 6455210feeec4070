"""The toolkit's logger."""

from __future__ import annotations

import logging


def get_logger() -> logging.Logger:
    """The logger of the toolkit's name."""
    return logging.getLogger("sagemaker-inference")


def configure_logger() -> None:
    """Lets the logger print its lines with the time."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s"))
    get_logger().addHandler(handler)
