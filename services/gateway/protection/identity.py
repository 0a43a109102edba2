"""Who stands at the door, read straight from the request's head: a queue token, a signed-in user, a key, or nobody yet.

A Bearer header, if present, is the only credential looked at. A cookie counts for a write only from our own pages,
and so that no other site can trade a fan's place for a new one, neither does a join without a credential.
A key alone names only who carries no cookie of ours: in a browser it counts together with a secret that this browser
was given, so that a key somebody else knows or chose opens nothing.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Scope

from shared.contracts.queue import Join
from shared.rules.rollout import outside
from shared.security.auth import SAFE_METHODS, cookie_name, queue_cookie, set_cookie
from shared.security.tokens import BEARER_MAX_CHARS, Keyring, QueueToken, QueueTokens, b64
from shared.security.user_jwt import User, Users
from shared.web.problems import BadCredential, ForeignOrigin, IdempotencyKeyMalformed, NoCredential, WrongEvent

Head = Mapping[bytes, bytes]
Claims = Mapping[str, Any]
HOLDER_BYTES, HOLDERS_AT_ONCE = 18, 256
BROWSER, BROWSER_S = "onsale_browser", 86_400
LOTS_MAX = 1_000
_KEY = re.compile(rb"[A-Za-z0-9._:-]{22,128}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{32}")


def head(scope: Scope) -> Head:
    """The request's header fields; of a repeated one, the first."""
    return dict(reversed(scope["headers"]))


def bearer(fields: Head) -> str | None:
    """The Bearer token; raises `BadCredential` for another scheme or an oversized one."""
    value = fields.get(b"authorization")
    if value is None:
        return None
    scheme, _, token = value.partition(b" ")
    if scheme.lower() != b"bearer" or not 0 < len(token) <= BEARER_MAX_CHARS:
        raise BadCredential("The Authorization header must be a Bearer token.")
    return token.decode("latin-1")


def cookie(fields: Head, name: str) -> str | None:
    """The value of one cookie."""
    wanted = name.encode() + b"="
    for part in fields.get(b"cookie", b"").split(b";"):
        pair = part.strip()
        if pair.startswith(wanted):
            return pair[len(wanted) :].decode("latin-1") or None
    return None


def require_own_origin(fields: Head) -> None:
    """Raises `ForeignOrigin` unless `Origin` names the host that was asked."""
    origin = urlsplit(fields.get(b"origin", b"").decode("latin-1")).netloc
    if not origin or origin.lower() != fields.get(b"host", b"").decode("latin-1").lower():
        raise ForeignOrigin


class TokenReader:
    """Reads queue tokens, remembering the most recent ones it verified, and makes holders for those who have none."""

    def __init__(
        self,
        keys: Keyring,
        users: Users,
        *,
        holder_keys: Keyring,
        cache_entries_max: int,
        secure: bool = False,
    ) -> None:
        self._keys, self._users, self._holder_keys = keys, users, holder_keys
        self._secure = secure
        self._followed = keys.keys
        self._tokens = QueueTokens(keys)
        self._remembered: OrderedDict[str, QueueToken] = OrderedDict()
        self._outdated: set[QueueToken] = set()
        self._remembered_max = cache_entries_max
        self._holders = _holders()

    def token(self, text: str, event_id: str) -> QueueToken:
        """Raises `BadCredential` for what we did not sign, `WrongEvent` for another event's."""
        if self._followed is not self._keys.keys:  # some key is gone, and with it what it signed
            self._followed = self._keys.keys
            self._remembered.clear()
            self._outdated.clear()
        token = self._remembered.get(text)
        if token is None:
            token = self._remembered[text] = self._tokens.read(text)
            if self._tokens.signed_lately(text):
                self._outdated.discard(token)
            else:
                self._outdated.add(token)
            if len(self._remembered) > self._remembered_max:
                self._outdated.discard(self._remembered.popitem(last=False)[1])
        if token.event_id != event_id:
            raise WrongEvent
        return token

    def queue_token(self, scope: Scope, event_id: str) -> QueueToken | None:
        """The place whose token this request shows; nothing if it shows a user's JWT. Raises `NoCredential`."""
        fields = head(scope)
        text = bearer(fields)
        if text is not None and not self._tokens.is_one(text):
            return None
        if text is None:
            text = cookie(fields, queue_cookie(event_id, secure=self._secure))
            if text is None:
                raise NoCredential
            if scope["method"] not in SAFE_METHODS:
                require_own_origin(fields)
        return self.token(text, event_id)

    async def user(self, scope: Scope) -> User:
        """The user whose JWT this request shows."""
        text = bearer(head(scope))
        if text is None:
            raise NoCredential
        return await self._users.read(text)

    async def join(self, scope: Scope, event_id: str) -> tuple[Join, Claims | None]:
        """Who wants to join: a user with their claims, a fan of before, of this key, or a new one."""
        fields = head(scope)
        key = fields.get(b"idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise IdempotencyKeyMalformed
        text = bearer(fields)
        if text is not None and not self._tokens.is_one(text):
            user = await self._users.read(text)
            return Join(holder=user.holder, user_id=user.user_id, may_be_known=True), user.claims
        token = self.token(text, event_id) if text is not None else self._by_cookie(fields, event_id)
        if token is not None:
            return Join(holder=token.holder, may_be_known=True), None  # a lane is earned anew, by code or claim
        if key is not None:
            return Join(holder=self.holder(event_id, key, *self._secret(fields)), may_be_known=True), None
        return Join(holder=next(self._holders)), None

    def holder(self, event_id: str, key: bytes, *secret: str) -> str:
        """The holder that a key of the fan's own stands for, in the browser with this secret if it has one."""
        return b64(self._holder_keys.mac("holder", event_id, key, *secret))[:32]

    def inside(self, scope: Scope, event_id: str, fan: Join, percent: float) -> Join:
        """The same newcomer under a name within the rolled-out share: the gate who sent them here drew it already. Who
        has a place or is signed in keeps the name.
        """
        if percent <= 0 or fan.user_id is not None or self.place_of(scope, event_id) is not None:
            return fan
        names = (self.holder(event_id, fan.holder.encode(), f"lot {lot}") for lot in range(LOTS_MAX))
        holder = next((name for name in names if not outside(event_id, name, percent)), fan.holder)
        return fan.model_copy(update={"holder": holder})

    def _secret(self, fields: Head) -> tuple[str, ...]:
        text = cookie(fields, cookie_name(BROWSER, secure=self._secure)) or ""
        return (text,) if _SECRET.fullmatch(text) else ()

    def secret_for(self, scope: Scope) -> str | None:
        """The cookie that gives this browser its secret; nothing if it has one."""
        if self._secret(head(scope)):
            return None
        name, secret = cookie_name(BROWSER, secure=self._secure), b64(os.urandom(24))
        return set_cookie(name, secret, max_age_s=BROWSER_S, secure=self._secure)

    def place_of(self, scope: Scope, event_id: str) -> QueueToken | None:
        """The place in this line, of now or of before, whose token this request shows."""
        fields = head(scope)
        text = bearer(fields)
        if text is not None:
            return self.token(text, event_id) if self._tokens.is_one(text) else None
        return self._by_cookie(fields, event_id, writes=scope["method"] not in SAFE_METHODS)

    def _by_cookie(self, fields: Head, event_id: str, *, writes: bool = True) -> QueueToken | None:
        text = cookie(fields, queue_cookie(event_id, secure=self._secure))
        if writes and (text is not None or b"origin" in fields):
            require_own_origin(fields)
        try:
            return self.token(text, event_id) if text is not None else None
        except (BadCredential, WrongEvent):
            return None  # a browser cannot drop a dead HttpOnly cookie by itself; the answer replaces it

    def outdated(self, token: QueueToken) -> bool:
        """Whether this place, read a moment ago, was shown by a token that another key signs now."""
        return bool(self._outdated) and token in self._outdated

    def sign(self, token: QueueToken) -> str:
        """The token's text."""
        return self._tokens.sign(token)


def _holders() -> Iterator[str]:
    """Names nobody can guess. Randomness is fetched for many at once: asking the kernel costs more than the rest."""
    while True:
        pool = os.urandom(HOLDER_BYTES * HOLDERS_AT_ONCE)
        for start in range(0, len(pool), HOLDER_BYTES):
            yield b64(pool[start : start + HOLDER_BYTES])
