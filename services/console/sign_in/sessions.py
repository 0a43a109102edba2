"""Begins sessions, and limits how many wrong keys an address may try."""

import time

from pydantic import SecretStr

from services.console.metrics import SIGN_INS
from services.console.sign_in.link import OneTimeLink
from shared.contracts.admin.console import SignIn
from shared.security.auth import AdminKeys, OperatorSession
from shared.security.guess_limiter import GuessLimiter
from shared.web.problems import BadCredential, InvalidRequest, TooManyWrongCodes

UNKNOWN_ADDRESS = "unknown"


class Sessions:
    """Of one process: its limit is per process, too."""

    def __init__(self, admin_keys: AdminKeys, link: OneTimeLink, *, wrong_per_minute: int) -> None:
        self._admin_keys, self._link = admin_keys, link
        self._limiter = GuessLimiter(per_s=wrong_per_minute / 60, at_once=wrong_per_minute)

    async def sign_in(self, wanted: SignIn, address: str | None) -> OperatorSession:
        """Raises `InvalidRequest`, `BadCredential`, `TooManyWrongCodes`."""
        if (wanted.key is None) == (wanted.link is None):
            raise InvalidRequest("Send a key or a link.")
        address = address or UNKNOWN_ADDRESS
        try:
            async with self._limiter.guess(address) as guess:
                try:
                    session = await self._session(wanted.key, wanted.link)
                except BadCredential:
                    guess.wrong = True
                    raise
        except TooManyWrongCodes as many:
            SIGN_INS.labels("limited").inc()
            raise TooManyWrongCodes(
                "Too many wrong keys were tried from this address.", retry_after_s=many.retry_after_s
            ) from None
        except BadCredential:
            SIGN_INS.labels("wrong").inc()
            raise
        SIGN_INS.labels("key" if wanted.key else "link").inc()
        return session

    async def _session(self, key: SecretStr | None, link: SecretStr | None) -> OperatorSession:
        if key is not None:
            return self._admin_keys.session(key.get_secret_value(), now_s=time.time())
        if link is not None:
            await self._link.use(link.get_secret_value())
        return self._admin_keys.admin_session(now_s=time.time())
