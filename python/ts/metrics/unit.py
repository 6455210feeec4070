"""Units by their short names."""

from jitney.torchserve.metrics import Units as Units
