"""The options of a call: its deadline, priority, tenant, cost and headers.

Checked here for handles and HTTP clients alike, before anything is sent. Handles write them into
a call's head, clients into headers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PRIORITIES = ("interactive", "bulk")
TENANT_MAX = 128
COST_MAX = 2**64 - 1
HEADERS_MAX = 0xFFFF
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True)
class CallOptions:
    """The options of a call; None where not set."""

    timeout: float | None = None
    """The deadline, in seconds from the call's arrival at the server."""
    priority: str | None = None
    tenant: str | None = None
    cost: int | None = None
    own_headers: tuple[tuple[str, str], ...] | None = None
    """Headers of the caller's own, such as `x-request-id` and `traceparent`."""

    def __post_init__(self) -> None:
        if self.priority is not None and self.priority not in PRIORITIES:
            raise ValueError(f"priority must be one of {', '.join(PRIORITIES)}, not {self.priority!r}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout must be a number of seconds above 0, not {self.timeout!r}")
        if self.tenant is not None and not _names_a_tenant(self.tenant):
            raise ValueError(f"tenant must be 1 to {TENANT_MAX} ASCII characters, not {self.tenant!r}")
        if self.cost is not None and not (type(self.cost) is int and 0 < self.cost <= COST_MAX):
            raise ValueError(f"cost must be a whole number above 0, not {self.cost!r}")
        for name, value in self.own_headers or ():
            if not (NAME.fullmatch(name) and value.isascii() and (value.isprintable())):
                raise ValueError(
                    f"a header has a name as in HTTP and printable ASCII characters, not {name}: {value!r}"
                )
        if self.own_headers and sum(6 + len(name) + len(value) for name, value in self.own_headers) > HEADERS_MAX:
            raise ValueError(f"headers must have at most {HEADERS_MAX} bytes in all")

    def over(self, lower: CallOptions) -> CallOptions:
        """These; unset ones come from `lower`."""
        return CallOptions(
            lower.timeout if self.timeout is None else self.timeout,
            lower.priority if self.priority is None else self.priority,
            lower.tenant if self.tenant is None else self.tenant,
            lower.cost if self.cost is None else self.cost,
            lower.own_headers if self.own_headers is None else self.own_headers,
        )

    @property
    def timeout_ms(self) -> int | None:
        """Whole milliseconds, at least one."""
        return None if self.timeout is None else max(round(self.timeout * 1000), 1)

    @property
    def headers(self) -> dict[str, str]:
        """The same as headers of an HTTP request."""
        headers = {
            "x-jitney-timeout-ms": self.timeout_ms,
            "x-jitney-priority": self.priority,
            "x-jitney-tenant": self.tenant,
            "x-jitney-cost": self.cost,
        }
        said = {name: str(value) for name, value in headers.items() if value is not None}
        return dict(self.own_headers or ()) | said


def _names_a_tenant(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= TENANT_MAX and name.isascii() and name.isprintable()
