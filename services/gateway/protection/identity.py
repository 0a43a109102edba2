"""Who a request is from, by its header fields: a queue token, a signed-in user, an Idempotency-Key, or a new fan.

A Bearer header, if present, is the only credential that is read. A cookie counts for a write only from our own pages.
So does a join without a credential: otherwise another site could replace a fan's place by a new one. An Idempotency-Key
identifies a fan without cookies; in a browser it counts together with the browser's secret, so that a key that somebody
else knows or chose identifies nobody.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from cachetools import FIFOCache
from starlette.types import Scope

from services.gateway.problems import CookiesNeeded
from services.gateway.settings import Settings
from shared.contracts.queue import JoinRequest
from shared.errors.problems import BadCredential, IdempotencyKeyMalformed, NoCredential, WrongEvent
from shared.security.tokens import (
    SAFE_METHODS,
    HeaderFields,
    QueueToken,
    QueueTokens,
    User,
    Users,
    b64,
    bearer,
    cookie,
    cookie_name,
    cookie_values,
    header_fields,
    queue_cookie,
    require_own_origin,
    set_cookie,
)

Claims = Mapping[str, Any]
HOLDER_BYTES, HOLDERS_PER_READ = 18, 256
BROWSER_COOKIE, BROWSER_COOKIE_S = "onsale_browser", 86_400
_IDEMPOTENCY_KEY = re.compile(rb"[A-Za-z0-9._:-]{22,128}")
_BROWSER_SECRET = re.compile(r"[A-Za-z0-9_-]{32}")


class TokenReader:
    """Reads queue tokens, caching the latest it verified, and creates holders for new fans."""

    def __init__(self, settings: Settings, users: Users) -> None:
        self._keys, self._holder_keys, self._users = settings.queue_token_keys, settings.holder_keys, users
        self._secure = settings.secure_cookies
        self._known_keys = self._keys.keys
        self._tokens = QueueTokens(self._keys)
        self._cached: OrderedDict[str, QueueToken] = OrderedDict()
        self._cached_max = settings.cache_entries_max
        self._needing_renewal: FIFOCache[QueueToken, None] = FIFOCache(settings.cache_entries_max)
        self._new_holders = _random_holders()

    def read(self, text: str, event_id: str) -> QueueToken:
        """Raises `BadCredential` for a token that is not ours, `WrongEvent` for one of another event."""
        if self._known_keys is not self._keys.keys:  # a key was removed, and its tokens became invalid
            self._known_keys = self._keys.keys
            self._cached.clear()
            self._needing_renewal.clear()
        token = self._cached.get(text)
        if token is None:
            token = self._cached[text] = self._tokens.read(text)
            if len(self._cached) > self._cached_max:
                self._cached.popitem(last=False)
            if not self._tokens.signed_by_current_key(text):
                self._needing_renewal[token] = None
            elif self._needing_renewal:
                self._needing_renewal.pop(token, None)
        if token.event_id != event_id:
            raise WrongEvent
        return token

    def queue_token(self, scope: Scope, event_id: str) -> QueueToken | None:
        """The queue token of this request; `None` if it has a user's JWT. Raises `NoCredential`, `BadCredential`,
        `WrongEvent`, `ForeignOrigin`.
        """
        fields = header_fields(scope)
        text = bearer(fields)
        if text is not None and not self._tokens.recognises(text):
            return None
        if text is not None:
            return self.read(text, event_id)
        texts = cookie_values(fields, queue_cookie(event_id, secure=self._secure))
        if not texts:
            raise NoCredential
        if scope["method"] not in SAFE_METHODS:
            require_own_origin(fields, secure=self._secure)
        for decoy in texts[:-1]:
            with suppress(BadCredential):
                return self.read(decoy, event_id)
        return self.read(texts[-1], event_id)

    async def user(self, scope: Scope) -> User:
        """The user of the JWT of this request. Raises `NoCredential`, `BadCredential`."""
        text = bearer(header_fields(scope))
        if text is None:
            raise NoCredential
        return await self._users.identify(text)

    async def identify(self, scope: Scope, event_id: str) -> tuple[JoinRequest, User | None]:
        """Who wants to join: a signed-in user, or another fan."""
        fan = self.fan(scope, event_id)
        if fan is not None:
            return fan, None
        user = await self.user(scope)
        return JoinRequest(holder=user.holder, user_id=user.user_id, may_be_known=True), user

    def fan(self, scope: Scope, event_id: str) -> JoinRequest | None:
        """Who wants to join: the holder of a token or an Idempotency-Key, or a new fan; `None` for a user's JWT."""
        fields = header_fields(scope)
        key = fields.get(b"idempotency-key")
        if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
            raise IdempotencyKeyMalformed
        text = bearer(fields)
        if text is not None and not self._tokens.recognises(text):
            return None
        token = self.read(text, event_id) if text is not None else self._cookie_token(fields, event_id)
        if token is not None:
            return JoinRequest(holder=token.holder, may_be_known=True)  # the lane needs a code or claim again
        if key is not None:
            return JoinRequest(
                holder=self.holder_for_key(event_id, key, *self._browser_secret(fields)), may_be_known=True
            )
        return JoinRequest(holder=next(self._new_holders))

    def holder_for_key(self, event_id: str, key: bytes, *secret: str) -> str:
        """The holder of an Idempotency-Key, in the browser with this secret if it has one."""
        return b64(self._holder_keys.mac("holder", event_id, key, *secret))[:32]

    def _browser_secret(self, fields: HeaderFields) -> tuple[str, ...]:
        text = cookie(fields, cookie_name(BROWSER_COOKIE, secure=self._secure)) or ""
        return (text,) if _BROWSER_SECRET.fullmatch(text) else ()

    def require_browser(self, scope: Scope) -> None:
        """Raises `CookiesNeeded` unless the browser sent its secret: without it all browsers would be one fan."""
        if not self._browser_secret(header_fields(scope)):
            raise CookiesNeeded

    def new_browser_cookie(self, scope: Scope) -> str | None:
        """A cookie with a new secret for this browser; `None` if it has one."""
        if self._browser_secret(header_fields(scope)):
            return None
        name, secret = cookie_name(BROWSER_COOKIE, secure=self._secure), b64(os.urandom(24))
        return set_cookie(name, secret, max_age_s=BROWSER_COOKIE_S, secure=self._secure)

    def may_have_place(self, scope: Scope, event_id: str) -> bool:
        """Whether the browser sent a queue token, whatever it is worth."""
        return cookie(header_fields(scope), queue_cookie(event_id, secure=self._secure)) is not None

    def place_token(self, scope: Scope, event_id: str) -> QueueToken | None:
        """The queue token of this request, which may be of an earlier epoch; `None` without one."""
        fields = header_fields(scope)
        text = bearer(fields)
        if text is not None:
            return self.read(text, event_id) if self._tokens.recognises(text) else None
        return self._cookie_token(fields, event_id, writes=scope["method"] not in SAFE_METHODS)

    def _cookie_token(self, fields: HeaderFields, event_id: str, *, writes: bool = True) -> QueueToken | None:
        texts = cookie_values(fields, queue_cookie(event_id, secure=self._secure))
        if writes and (texts or b"origin" in fields):
            require_own_origin(fields, secure=self._secure)
        for text in texts:
            with suppress(BadCredential, WrongEvent):
                return self.read(text, event_id)
        return None  # a browser cannot delete an invalid HttpOnly cookie; the answer replaces it

    def needs_renewal(self, token: QueueToken) -> bool:
        """Whether the token just read was signed by a key that is no longer the newest."""
        return bool(self._needing_renewal) and token in self._needing_renewal

    def sign(self, token: QueueToken) -> str:
        """The signed text of the token."""
        return self._tokens.sign(token)


def _random_holders() -> Iterator[str]:
    """Random holders. One read of randomness serves many: the system call costs more than the rest."""
    while True:
        pool = os.urandom(HOLDER_BYTES * HOLDERS_PER_READ)
        for start in range(0, len(pool), HOLDER_BYTES):
            yield b64(pool[start : start + HOLDER_BYTES])
