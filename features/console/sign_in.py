"""Sign-in of operators: an operator's key, or a link that works once, becomes the cookie of a session.

Wrong keys are limited by address; a right one never is. The link is for the person who started the suite. PostgreSQL
keeps that it was used: it works once however many consoles run, and not again after Redis is lost; while PostgreSQL is
away it does not work. No script can read the cookie, and no other site can send it along.
"""

import hashlib
import hmac
import time

from pydantic import SecretStr
from sqlalchemy.dialects.postgresql import insert
from starlette.types import Scope

from features.console.metrics import SIGN_INS
from features.console.schemas import SignIn
from features.console.tables import used_link
from shared.errors.problems import BadCredential, InvalidRequest, Unavailable
from shared.postgres.engine import DB_AWAY, AsyncEngine
from shared.security.auth import SESSION_S, AdminKeys, OperatorSession, WrongKeys, session_cookie
from shared.security.tokens import HOST_ONLY, header_fields, set_cookie


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


class Sessions:
    """Sign-ins by key and by link; wrong ones of one address are limited."""

    def __init__(self, admin_keys: AdminKeys, link: OneTimeLink, wrong_keys: WrongKeys) -> None:
        self._admin_keys, self._link, self._wrong_keys = admin_keys, link, wrong_keys

    async def sign_in(self, wanted: SignIn, address: str | None) -> OperatorSession:
        """Raises `InvalidRequest`, `BadCredential`, `TooManyWrongCodes`."""
        if (wanted.key is None) == (wanted.link is None):
            raise InvalidRequest("Send a key or a link.")
        try:
            session = await self._session(wanted.key, wanted.link)
        except BadCredential as wrong:
            refusal = self._wrong_keys.refusal(wrong, address)
            SIGN_INS.labels("wrong" if refusal is wrong else "limited").inc()
            raise refusal from wrong
        SIGN_INS.labels("key" if wanted.key else "link").inc()
        return session

    async def _session(self, key: SecretStr | None, link: SecretStr | None) -> OperatorSession:
        if key is not None:
            return self._admin_keys.session(key.get_secret_value(), now_s=time.time())
        if link is not None:
            await self._link.use(link.get_secret_value())
        return self._admin_keys.admin_session(now_s=time.time())


def session_field(scope: Scope, text: str = "") -> str:
    """The `Set-Cookie` value that begins a session; without a text it ends in this browser."""
    name = session_cookie(header_fields(scope))
    max_age_s = SESSION_S if text else 0
    return set_cookie(name, text, max_age_s=max_age_s, secure=name.startswith(HOST_ONLY), same_site="Strict")
