"""The process one model runs in: dial in, load the handler, turn batches into replies.

Reading order: `protocol` (frames), `batch` (what a handler sees), `context`, `reply`
(what the server gets back), `loader`, `loop`, `__main__`; below them `jitney.torchserve`.
The worker knows neither HTTP nor batching policy; both belong to the server.
"""
