"""Who may order and who may see an order: the holder of a pass, a signed-in user, or whoever has the order's own token.

A pass that has expired opens no order: orders have tokens of their own, which the browser keeps. For a bounded time it
still proves who made a reservation, as a hold outlasts the session it was made in.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from starlette.requests import Request

from services.orders.order.next_step import Order
from services.orders.problems import UnknownOrder
from shared.runtime.clock import now_s
from shared.security.auth import SAFE_METHODS, bearer, cookie_name, order_cookie, require_own_origin
from shared.security.order_tokens import read_order_token
from shared.security.tokens import Keyring, PassReader
from shared.security.user_jwt import Users
from shared.web.problems import BadCredential, NoCredential
from shared.web.routes import EVENT_ID

PASSES_MAX = 16
_PASS_COOKIES = {secure: re.compile(cookie_name(f"onsale_pass_{EVENT_ID}", secure=secure)) for secure in (False, True)}


def owner_id(event_id: str, holder: str) -> str:
    """One buyer of one event, as orders remember them."""
    return f"{event_id}:{holder}"


class Customer(NamedTuple):
    """Who buys: a holder at one event, or a signed-in user, who is the same holder at every event."""

    event_id: str | None
    holder: str

    def owns(self, principal: str) -> bool:
        """Whether what this principal did is this caller's."""
        event_id, _, holder = principal.partition(":")
        return holder == self.holder and self.event_id in (None, event_id)


@dataclass(frozen=True, slots=True)
class CustomerAuthenticator:
    """Reads credentials; asks no neighbour."""

    passes: PassReader
    order_token_keys: Keyring
    users: Users
    secure_cookies: bool = False

    async def customers(self, request: Request, *, lapsed_s: float = 0) -> list[Customer]:
        """The user, or the holders of the passes that were shown: the Bearer's, or those in cookies; a pass may have
        expired `lapsed_s` ago. Raises `NoCredential`, `BadCredential`.
        """
        token = bearer(request)
        if token is not None:
            return [self._buyer(token, lapsed_s) if self.passes.is_one(token) else await self._user(token)]
        held = self._pass_cookies(request, lapsed_s)
        if not held:
            raise NoCredential
        if request.method not in SAFE_METHODS:
            require_own_origin(request)
        return held

    async def _user(self, text: str) -> Customer:
        return Customer(None, (await self.users.read(text)).holder)

    def _pass_cookies(self, request: Request, lapsed_s: float) -> list[Customer]:
        ours = _PASS_COOKIES[self.secure_cookies].fullmatch
        texts = [value for name, value in request.cookies.items() if ours(name)]
        held = []
        for text in texts[:PASSES_MAX]:
            try:
                held.append(self._buyer(text, lapsed_s))
            except BadCredential:
                continue  # a stale cookie of another event is no reason to turn this buyer away
        if texts and not held:
            raise BadCredential
        return held

    def _buyer(self, text: str, lapsed_s: float) -> Customer:
        held = self.passes.read(text, now_s=now_s() - lapsed_s)
        return Customer(held.event_id, held.holder)

    async def require_owner(self, request: Request, order: Order) -> None:
        """Raises `UnknownOrder` for somebody else's credential, so that references cannot be probed."""
        token = bearer(request)
        cookie = request.cookies.get(order_cookie(order.reference, secure=self.secure_cookies))
        if token is None and cookie and self._opens(cookie, order.reference):
            if request.method not in SAFE_METHODS:
                require_own_origin(request)
            return
        if token is not None and self._opens(token, order.reference):
            return
        if not any(buyer.owns(order.principal) for buyer in await self.customers(request)):
            raise UnknownOrder

    async def require_any(self, request: Request) -> None:
        """Raises `NoCredential` or `BadCredential` if the caller could not be anybody's owner."""
        if self.opened_by_token(request) is None:
            await self.customers(request)

    def opened_by_token(self, request: Request) -> str | None:
        """The reference that the Bearer's order token opens, if it is one."""
        token = bearer(request)
        if token is None:
            return None
        try:
            return read_order_token(self.order_token_keys, token)
        except BadCredential:
            return None

    def _opens(self, token: str, reference: str) -> bool:
        try:
            return read_order_token(self.order_token_keys, token) == reference
        except BadCredential:
            return False
