"""One request and its whole answer, and what their credentials say of the fan. Nothing here is verified."""

import base64
import hashlib
import json
from typing import Any, NamedTuple


class Exchange(NamedTuple):
    """One request and its answer, by the clock of the process that sent it (ms since 1970). Status 0: none came."""

    method: str
    path: str  # without the query
    query: str
    headers: dict[str, str]  # of the request, names in lower case
    request: bytes
    status: int
    body: bytes
    sent_ms: int
    at_ms: int

    @property
    def bearer(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def key(self) -> str | None:
        """A digest of the idempotency key: the key itself opens what it created."""
        given = self.headers.get("idempotency-key")
        return digest(given.encode()) if given else None


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def document(content: bytes) -> dict[str, Any]:
    """The JSON object that is written there, an empty one for anything else."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def claims(token: str) -> dict[str, Any]:
    """The payload of a token of three parts, without any verification; empty if it has none."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return document(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}


def fan_of(token: str) -> dict[str, str]:
    """Who shows this token: the holder of a place or pass, or the user id of a signed-in user's JWT."""
    payload = claims(token)
    if not isinstance(payload.get("sub"), str):
        return {}
    return {"fan": payload["sub"]} if "seq" in payload else {"user": payload["sub"]}
