"""The controls that `two_persons` may name: each operation whose route says that it is one."""

from typing import Literal, NamedTuple

from shared.contracts.admin.operator_calls import OPERATIONS


class GuardedRoute(NamedTuple):
    """The POST route of a control, the role that it needs of both persons, and the models of its body. The event stays
    a parameter of the path, an action is part of it.
    """

    path: str
    role: Literal["operator", "admin"]
    body: str


CONTROLS: dict[str, GuardedRoute] = {
    found.name: GuardedRoute(each.path.replace("{action}", found.action), found.role, each.body or "")
    for each in OPERATIONS.values()
    if (found := each.control)
}


def controls_of(text: str) -> frozenset[str]:
    """The controls of a comma list. Raises `ValueError` for an unknown one."""
    names = {name for part in text.split(",") if (name := part.strip())}
    if unknown := sorted(names - CONTROLS.keys()):
        raise ValueError(f"no such control: {', '.join(unknown)}; there are {', '.join(CONTROLS)}")
    return frozenset(names)
