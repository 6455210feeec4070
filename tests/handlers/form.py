"""Says what it was given: the names, types and sizes of a request's parameters and some headers."""


def handle(data, context):
    """One description per row."""
    if not data:
        return None
    return [describe(row, context, index) for index, row in enumerate(data)]


def describe(row, context, index):
    """What one request brought."""
    parameters = {name: [type(value).__name__, len(value)] for name, value in row.items()}
    headers = {name: context.get_request_header(index, name) for name in ("explain", "url_path")}
    return {"parameters": parameters, "headers": headers, "batch": context.manifest["model"]["modelVersion"]}
