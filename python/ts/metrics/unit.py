"""Units by their short names."""

from jitney.torchserve.metrics import SIZE_UNITS, TIME_UNITS, Units, full_unit

__all__ = ["SIZE_UNITS", "TIME_UNITS", "Units", "full_unit"]
