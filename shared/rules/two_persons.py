"""The controls that can be made to need a second person, because what they do cannot be taken back, or sends
visitors and their passes to another site.

Each is one route of an admin API, named by its template: the event stays a parameter, an action is part of it.
"""

from typing import Literal, NamedTuple

Role = Literal["viewer", "operator", "admin"]  # of operators, each may do what the one before may
Control = Literal[
    "close_room", "reset_room", "change_gate", "refund_event", "release_all", "draw_lottery", "approve_oversell"
]


class GuardedRoute(NamedTuple):
    """The POST route of a control, and the role that it needs of both persons."""

    path: str
    role: Literal["operator", "admin"]


CONTROLS: dict[Control, GuardedRoute] = {
    "close_room": GuardedRoute("/admin/events/{event_id}/room/close", "operator"),
    "reset_room": GuardedRoute("/admin/events/{event_id}/room/reset", "admin"),
    "change_gate": GuardedRoute("/admin/events/{event_id}/room/gate", "admin"),
    "refund_event": GuardedRoute("/admin/orders/events/{event_id}/refund", "operator"),
    "release_all": GuardedRoute("/admin/inventory/events/{event_id}/release-all", "operator"),
    "draw_lottery": GuardedRoute("/admin/queue/events/{event_id}/lottery/draw", "operator"),
    "approve_oversell": GuardedRoute("/admin/inventory/events/{event_id}/oversell/approve", "admin"),
}


def controls_of(text: str) -> frozenset[Control]:
    """The controls of a comma list. Raises `ValueError` for an unknown one."""
    names = {name for part in text.split(",") if (name := part.strip())}
    if unknown := sorted(names - CONTROLS.keys()):
        raise ValueError(f"no such control: {', '.join(unknown)}; there are {', '.join(CONTROLS)}")
    return frozenset(control for control in CONTROLS if control in names)


def control_of(method: str, path: str) -> Control | None:
    """The control whose route has this template."""
    return next((name for name, route in CONTROLS.items() if method == "POST" and route.path == path), None)
