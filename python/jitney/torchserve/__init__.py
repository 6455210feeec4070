"""What TorchServe's handlers are promised, whatever carries their batches.

`context` and `metrics` are the objects a handler is given; `loading` finds and initialises it; `bodies` reads what
clients send and writes what it returns, `failures` says what an exception means. `jitney.worker` and the package `ts`
both build on this one, so that they always agree; nothing here imports either of them. Stock handlers and request
envelopes are looked up in `ts` by name, when a model names one.
"""
