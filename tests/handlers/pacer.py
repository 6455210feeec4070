"""Takes as long as its batch's first request says: `batch_ms` for the batch and `item_ms` for each of its items.

Tells every request who it was, what its own header said, and how large its batch was.
"""

import time


def handle(data, context):
    """One answer per row, after the time the batch takes."""
    if not data:
        return None
    orders = [row.get("body") or {} for row in data]
    if any(order.get("uncollatable") for order in orders):
        raise TypeError("these do not stack")
    pace = orders[0]
    time.sleep((pace.get("batch_ms", 5) + pace.get("item_ms", 0) * len(data)) / 1e3)
    return [
        {"id": order.get("id"), "who": context.get_request_header(index, "x-who"), "size": len(data)}
        for index, order in enumerate(orders)
    ]
