"""The rules of a room's gate: what needs no pass, and where a fan may be sent back to. No I/O, linear in the input."""

import re

from services.gateway.gate_requests import Asked
from shared.contracts.room_options import GateRules

RETURN_MAX_CHARS = 2048
_PLAIN = re.compile(r"/[A-Za-z0-9_.~/@:,+=-]*")
_ADDRESS = re.compile(r"(https?://[a-z0-9.-]{1,253}(?::[0-9]{1,5})?)(?:[/?][!-~]*)?")


def needs_no_pass(asked: Asked, rules: GateRules) -> bool:
    """Health checks, assets and what else the room lets through, and a browser's question before a call from another of
    the seller's own sites. Anybody can claim to be that question.

    A path that is not written plainly (escapes, dots that climb, doubled slashes) never matches: the site may read it
    as another one.
    """
    if asked.method == "OPTIONS":
        ours = {*rules.return_to, rules.waiting_room} - {None}
        return "access-control-request-method" in asked.headers and asked.headers.get("origin") in ours
    if asked.method not in ("GET", "HEAD") or not rules.let_through:
        return False
    path = asked.path
    plain = _PLAIN.fullmatch(path) and "//" not in path and "/." not in path and ".." not in path
    return bool(plain) and any(matches(pattern, path) for pattern in rules.let_through)


def matches(pattern: str, path: str) -> bool:
    """Whether the path is of this pattern, in which `*` stands for any characters; each part is looked for once."""
    first, *rest = pattern.split("*")
    if not rest:
        return path == first
    if not path.startswith(first) or not path.endswith(rest[-1]):
        return False
    at, end = len(first), len(path) - len(rest[-1])
    for part in rest[:-1]:
        found = path.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end


def site_of(address: str, rules: GateRules) -> str | None:
    """The allowed site that this address lies on, or nothing."""
    fits = _ADDRESS.fullmatch(address) if len(address) <= RETURN_MAX_CHARS and "\\" not in address else None
    return fits[1] if fits and fits[1] in rules.return_to else None
