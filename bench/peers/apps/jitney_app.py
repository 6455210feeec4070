"""A Jitney definition: `jitney serve jitney_app.py:bench`."""

import work

import jitney

model = work.load()
Input = bytes if work.RAW else str


@jitney.batch(max_batch_size=work.BATCH)
def bench(input: list[Input]) -> list[int]:
    return model(input)
