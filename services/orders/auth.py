"""Authentication of customers: by a pass of the waiting room, a signed-in user's JWT, or an order's own token.

An expired pass opens no order: orders have tokens of their own, which the browser keeps. For a bounded time it still
proves who made a reservation, because a hold outlasts the session it was made in.
"""

import re
from dataclasses import dataclass

from services.orders.model.order import Customer, Order
from services.orders.problems import UnknownOrder
from shared.errors.problems import BadCredential, NoCredential
from shared.routes import EVENT_ID, REFERENCE
from shared.runtime.clock import now_s
from shared.security.limits import FanLimit
from shared.security.tokens import (
    SAFE_METHODS,
    HeaderFields,
    Keyring,
    PassReader,
    Users,
    bearer,
    cookie_name,
    cookie_values,
    cookies,
    order_cookie,
    read_order_token,
    require_own_origin,
)
from shared.web.request import Request

PASSES_MAX, ORDERS_MAX = 16, 100
_PASS_COOKIES = {secure: re.compile(cookie_name(f"onsale_pass_{EVENT_ID}", secure=secure)) for secure in (False, True)}
_ORDER_COOKIES = {
    secure: re.compile(order_cookie(f"(?P<reference>{REFERENCE})", secure=secure)) for secure in (False, True)
}


@dataclass(frozen=True, slots=True)
class CustomerAuthenticator:
    """Reads credentials and verifies them locally; no other service is called."""

    passes: PassReader
    order_token_keys: Keyring
    users: Users
    fan_limit: FanLimit
    secure_cookies: bool = False

    async def customers(self, request: Request, *, lapsed_s: float = 0) -> list[Customer]:
        """The signed-in user or the holders of the passes in the request: of the bearer token, else of the cookies. A
        pass may have expired up to `lapsed_s` seconds ago. Each of them counts a call. Raises `NoCredential`,
        `BadCredential`, `TooManyRequests`.
        """
        fields = request.fields
        token = bearer(fields)
        if token is not None:
            held = [
                self._pass_holder(token, lapsed_s)
                if self.passes.recognises(token)
                else Customer(None, (await self.users.identify(token)).holder)
            ]
        else:
            held = self._pass_cookies(fields, lapsed_s)
            if not held:
                raise NoCredential
            if request.method not in SAFE_METHODS:
                require_own_origin(fields, secure=self.secure_cookies)
        for customer in held:
            self.fan_limit.check(customer.event_id or "", customer.holder)
        return held

    def _pass_cookies(self, fields: HeaderFields, lapsed_s: float) -> list[Customer]:
        ours = _PASS_COOKIES[self.secure_cookies].fullmatch
        texts = [value for name, value in cookies(fields) if ours(name)]
        held = []
        for text in texts[:PASSES_MAX]:
            try:
                held.append(self._pass_holder(text, lapsed_s))
            except BadCredential:
                continue  # a stale cookie of another event must not lock this customer out
        if texts and not held:
            raise BadCredential
        return held

    def _pass_holder(self, text: str, lapsed_s: float) -> Customer:
        held = self.passes.read(text, now_s=now_s() - lapsed_s)
        return Customer(held.event_id, held.holder)

    async def require_owner(self, request: Request, order: Order) -> None:
        """Raises `UnknownOrder` for somebody else's credential, so that references cannot be probed."""
        fields = request.fields
        token = bearer(fields)
        name = order_cookie(order.reference, secure=self.secure_cookies)
        texts = cookie_values(fields, name) if token is None else [token]
        if any(self._opened(text) == order.reference for text in texts):
            if token is None and request.method not in SAFE_METHODS:
                require_own_origin(fields, secure=self.secure_cookies)
            self.fan_limit.check(order.reference)
            return
        if not any(customer.owns(order.owner_id) for customer in await self.customers(request)):
            raise UnknownOrder

    def orders_in_cookies(self, request: Request) -> list[str]:
        """The references that this browser's cookies open; none of a request with a bearer token."""
        fields = request.fields
        if bearer(fields) is not None:
            return []
        ours = _ORDER_COOKIES[self.secure_cookies].fullmatch
        texts = [(match["reference"], token) for name, token in cookies(fields) if (match := ours(name))]
        return [reference for reference, token in texts[:ORDERS_MAX] if self._opened(token) == reference]

    def order_of_token(self, request: Request) -> str | None:
        """The reference that the bearer token opens, if it is an order token; the call counts for the order. Raises
        `TooManyRequests`.
        """
        reference = self._opened(bearer(request.fields))
        if reference is not None:
            self.fan_limit.check(reference)
        return reference

    def _opened(self, token: str | None) -> str | None:
        try:
            return read_order_token(self.order_token_keys, token) if token else None
        except BadCredential:
            return None
