"""A module-level function and nothing else, the smallest form of a handler."""

calls = 0


def handle(data, context):
    """TorchServe calls it once with no data when it loads the model."""
    global calls
    if not data:
        return None
    calls += 1
    return [{"call": calls, "body": bytes(row["body"]).decode()} for row in data]
