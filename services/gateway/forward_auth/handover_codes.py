"""How a pass crosses from the waiting room's host to the protected site's: by a code in the address, never by itself.

A code is good once, for 30 s, on one site, in the one browser that the site's gate sent here.
"""

import base64
import hashlib
import re
import secrets

from pydantic import BaseModel

from shared.redis.client import REDIS_AWAY, Redis
from shared.security.tokens import b64

HANDOVER_S = 30
COOKIE_PROBE = "here"  # not a code: asks the browser whether it keeps cookies
_CODE = re.compile(r"[A-Za-z0-9_-]{32}")


class Grant(BaseModel):
    """What a code stands for."""

    event_id: str
    site: str
    gate: str
    admission: str


def browser_binding(gate_id: str) -> str:
    """What a browser's gate id is called away from its own site: it proves nothing there, and names it all the same."""
    return b64(hashlib.sha256(f"onsale gate {gate_id}".encode()).digest()[:18])


def new_gate_id() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(18)).decode()[:22]


class OneTimeCodes:
    """Codes on their way, kept by the engine for as long as they are good."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def give(self, grant: Grant) -> str:
        """A code for this grant."""
        code = b64(secrets.token_bytes(24))
        await self._redis.set(_key(code), grant.model_dump_json(), ex=HANDOVER_S)
        return code

    async def take(self, code: str) -> Grant | None:
        """What the code stands for, this once. Nothing while the engine is away: the fan is sent for another."""
        if not _CODE.fullmatch(code):
            return None
        try:
            raw = await self._redis.getdel(_key(code))
        except REDIS_AWAY:
            return None
        return None if raw is None else Grant.model_validate_json(raw)


def _key(code: str) -> str:
    return f"gateway:handover:{hashlib.sha256(code.encode()).hexdigest()}"
