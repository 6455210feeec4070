"""The process one model runs in: dial in, load the handler, turn batches into replies.

Reading order: `protocol` (frames), `batch` and `headers` (what a handler sees), `context`,
`outputs` and `reply` (what the server gets back), `loader`, `loop`, `__main__`.
The worker knows neither HTTP nor batching policy; both belong to the server.
"""
