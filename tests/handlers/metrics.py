"""Reports what the requests tell it to: the body is a JSON list of `[call, arguments…]`, or `["print", line]`."""


def handle(data, context):
    """Carries out the calls and answers with their number."""
    if not data:
        return None
    return [str(sum(report(context, *order) for order in row.get("body") or [])) for row in data]


def report(context, call, *arguments):
    """One call of the metrics interface, or a line as it is."""
    if call == "print":
        print(*arguments, flush=True)
    else:
        getattr(context.metrics, call)(*arguments)
    return 1
