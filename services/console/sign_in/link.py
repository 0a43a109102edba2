"""The one-time link, by which the person who started the suite opens the console signed in.

Redis keeps that it was used, so that it works once however many consoles run; without Redis it does not work.
"""

import hashlib
import hmac

from pydantic import SecretStr

from shared.redis.client import REDIS_AWAY, Redis
from shared.web.problems import BadCredential, Unavailable

KEPT_S = 366 * 86_400


class OneTimeLink:
    """The link of this start; no secret, no link."""

    def __init__(self, redis: Redis, secret: SecretStr | None) -> None:
        self._redis, self._secret = redis, secret.get_secret_value().encode() if secret else None

    async def use(self, secret: str) -> None:
        """Raises `BadCredential` for a wrong or a used secret, `Unavailable` without Redis."""
        given = secret.encode()
        if self._secret is None or not hmac.compare_digest(given, self._secret):
            raise BadCredential("This link is not valid. Sign in with a key.")
        key = f"console:link:{{{hashlib.sha256(given).hexdigest()[:32]}}}"
        try:
            first = await self._redis.set(key, "used", nx=True, ex=KEPT_S)
        except REDIS_AWAY as away:
            raise Unavailable("Redis is away: the link cannot be used now. Sign in with a key.") from away
        if not first:
            raise BadCredential("This link was used before. Sign in with a key.")
