"""The controls that can be made to need a second person, because what they do cannot be taken back, or sends
visitors and their passes to another site.

Each is one route of an admin API, or one action of it, and the route says so.
"""

from collections.abc import Mapping
from typing import Any, Literal

Role = Literal["viewer", "operator", "admin"]  # of operators, each may do what the one before may
CONTROL = "x-onsale-control"


def control(name: str, *, action: str | None = None) -> dict[str, Any]:
    """`openapi_extra` of the route of this control; with `action`, only where the path has this one."""
    return {CONTROL: {"name": name} | ({"action": action} if action else {})}


def control_of(extra: Mapping[str, Any] | None, action: str | None) -> str | None:
    """The control of a route with this `openapi_extra`, when its path has this action."""
    found: dict[str, str] = (extra or {}).get(CONTROL, {})
    return found.get("name") if found.get("action") in (None, action) else None
