"""The one-time link, by which the person who started the suite opens the console signed in.

PostgreSQL keeps that it was used: it works once however many consoles run, and not again after Redis is lost. While
PostgreSQL is away it does not work.
"""

import hashlib
import hmac

from pydantic import SecretStr
from sqlalchemy.dialects.postgresql import insert

from services.console.tables import used_link
from shared.errors.problems import BadCredential, Unavailable
from shared.postgres.engine import DB_AWAY, AsyncEngine


class OneTimeLink:
    """The link of this start; no secret, no link."""

    def __init__(self, db: AsyncEngine, secret: SecretStr | None) -> None:
        self._db, self._secret = db, secret.get_secret_value().encode() if secret else None

    async def use(self, secret: str) -> None:
        """Raises `BadCredential` for a wrong or a used secret, `Unavailable` without PostgreSQL."""
        given = secret.encode()
        if self._secret is None or not hmac.compare_digest(given, self._secret):
            raise BadCredential("This link is not valid. Sign in with a key.")
        first = insert(used_link).values(digest=hashlib.sha256(given).hexdigest()).on_conflict_do_nothing()
        try:
            async with self._db.begin() as connection:
                was_used = not (await connection.execute(first)).rowcount
        except DB_AWAY as away:
            raise Unavailable("The database is away: the link cannot be used now. Sign in with a key.") from away
        if was_used:
            raise BadCredential("This link was used before. Sign in with a key.")
