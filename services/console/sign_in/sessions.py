"""Begins sessions. Wrong keys are limited by address; a right one never is."""

import time

from pydantic import SecretStr

from services.console.metrics import SIGN_INS
from services.console.sign_in.link import OneTimeLink
from shared.contracts.admin.console import SignIn
from shared.errors.problems import BadCredential, InvalidRequest
from shared.security.auth import AdminKeys, OperatorSession, WrongKeys


class Sessions:
    """Of one process: its limit is per process, too."""

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
