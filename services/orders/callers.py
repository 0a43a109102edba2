"""Who may order and who may see an order: the holder of a pass, or whoever has the order's own token.

A pass that has expired is still proof of who its holder is; whether that is enough is for the caller of this room.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from services.orders.problems import UnknownOrder
from services.orders.steps import Order
from shared.auth import SAFE_METHODS, bearer, order_cookie, require_own_origin
from shared.clock import now_s
from shared.problems import BadCredential, NoCredential
from shared.routes import EVENT_ID
from shared.tokens import Keyring, Pass, PassReader, read_order_token

PASSES_MAX = 16
_PASS_COOKIE = re.compile(rf"onsale_pass_{EVENT_ID}")


def principal(event_id: str, holder: str) -> str:
    """One buyer of one event, as orders remember them."""
    return f"{event_id}:{holder}"


@dataclass(frozen=True, slots=True)
class Callers:
    """Reads credentials; asks nobody."""

    passes: PassReader
    order_token_keys: Keyring

    def buyers(self, request: Request) -> list[Pass]:
        """The passes the caller holds: the Bearer's, or those in cookies. Raises `NoCredential`, `BadCredential`."""
        token = bearer(request)
        if token is not None:
            return [self._pass(token)]
        held = self._pass_cookies(request)
        if not held:
            raise NoCredential
        if request.method not in SAFE_METHODS:
            require_own_origin(request)
        return held

    def _pass_cookies(self, request: Request) -> list[Pass]:
        texts = [value for name, value in request.cookies.items() if _PASS_COOKIE.fullmatch(name)]
        held = []
        for text in texts[:PASSES_MAX]:
            try:
                held.append(self._pass(text))
            except BadCredential:
                continue  # a stale cookie of another event is no reason to turn this buyer away
        if texts and not held:
            raise BadCredential
        return held

    def _pass(self, text: str) -> Pass:
        return self.passes.read(text, now_s=now_s(), allow_expired=True)

    def require_owner(self, request: Request, order: Order) -> None:
        """Raises `UnknownOrder` for somebody else's credential, so that references cannot be probed."""
        token = bearer(request)
        cookie = request.cookies.get(order_cookie(order.reference))
        if token is None and cookie and self._opens(cookie, order.reference):
            if request.method not in SAFE_METHODS:
                require_own_origin(request)
            return
        if token is not None and self._opens(token, order.reference):
            return
        if order.principal not in principals(self.buyers(request)):
            raise UnknownOrder

    def require_any(self, request: Request) -> None:
        """Raises `NoCredential` or `BadCredential` if the caller could not be anybody's owner."""
        if self.opened_by_token(request) is None:
            self.buyers(request)

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


def principals(passes: Sequence[Pass]) -> list[str]:
    return [principal(held.event_id, held.holder) for held in passes]
