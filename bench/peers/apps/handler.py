"""A TorchServe handler: TorchServe and Jitney serve the same archive."""

import work

model = None


def handle(data, context):
    global model
    if model is None:
        model = work.load()
    if data is None:
        return None
    bodies = [row.get("body") if "body" in row else row["data"] for row in data]
    return [str(one) for one in model(bodies if work.RAW else [body["input"] for body in bodies])]
