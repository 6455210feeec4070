"""Units: the short names handlers use and the full ones the metric lines carry."""

from __future__ import annotations


class Units:
    """Known units by short name."""

    units: dict[str, str] = {  # noqa: RUF012 - TorchServe's attribute, read by user code
        "ms": "Milliseconds",
        "s": "Seconds",
        "percent": "Percent",
        "count": "Count",
        "MB": "Megabytes",
        "GB": "Gigabytes",
        "kB": "Kilobytes",
        "B": "Bytes",
        "": "unit",
    }


TIME_UNITS = frozenset(("ms", "s"))
SIZE_UNITS = frozenset(("MB", "kB", "GB", "B"))


def full_unit(unit: str | None) -> str:
    """The full name of a unit; unknown ones are kept as they are."""
    return Units.units.get(unit or "", unit or "")
