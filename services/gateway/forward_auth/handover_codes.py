"""One-time codes that take a pass from the waiting room's host to a protected site: the address carries the code only.

A code works once, for 30 s, on one site, in the one browser that this site redirected to the waiting room.
"""

import base64
import hashlib
import re
import secrets

from pydantic import BaseModel

from shared.redis.client import REDIS_AWAY, Redis
from shared.security.tokens import b64

CODE_LIFETIME_S = 30
COOKIE_PROBE = "here"  # not a code: tests whether the browser keeps cookies
_CODE = re.compile(r"[A-Za-z0-9_-]{32}")


class Grant(BaseModel):
    """The pass that a code stands for, and where it may be redeemed."""

    event_id: str
    site: str
    browser: str
    admission: str


def browser_binding(gate_id: str) -> str:
    """SHA-256 of the gate id: identifies the browser to other hosts without letting them impersonate it."""
    return b64(hashlib.sha256(f"onsale gate {gate_id}".encode()).digest()[:18])


def new_gate_id() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(18)).decode()[:22]


class OneTimeCodes:
    """Codes in Redis, which deletes them when they expire."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def issue(self, grant: Grant) -> str:
        """A new code for this grant."""
        code = b64(secrets.token_bytes(24))
        await self._redis.set(_key(code), grant.model_dump_json(), ex=CODE_LIFETIME_S)
        return code

    async def redeem(self, code: str) -> Grant | None:
        """The grant of a code, once; `None` if it is spent or expired, and while Redis is away."""
        if not _CODE.fullmatch(code):
            return None
        try:
            raw = await self._redis.getdel(_key(code))
        except REDIS_AWAY:
            return None
        return None if raw is None else Grant.model_validate_json(raw)


def _key(code: str) -> str:
    return f"gateway:handover:{hashlib.sha256(code.encode()).hexdigest()}"
