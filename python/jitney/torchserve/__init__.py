"""What TorchServe's handlers are promised, whatever carries their batches.

`context` and `metrics` are the objects a handler is given; `loading` finds and initialises it; `inputs` reads what
clients send, `outputs` and `failures` turn what it returns or raises into answers. `jitney.worker` and the package `ts`
both build on this one, so that they always agree; nothing here imports either of them. Stock handlers and request
envelopes are looked up in `ts` by name, when a model names one.
"""
