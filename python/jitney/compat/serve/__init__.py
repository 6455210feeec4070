"""Ray Serve's API."""
from jitney.compat.serve.batching import batch
from jitney.compat.serve.context import get_multiplexed_model_id
