"""`jitney check` and the applications of unit tests: definitions run in this process, without a server."""
