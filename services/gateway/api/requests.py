"""What the fast handlers of the line share: the context of a request, an empty body, a cookie, the rollout."""

from collections.abc import Callable

from starlette.types import Scope

from services.gateway.api.schemas import EmptyBody
from services.gateway.state import State
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.rules.rollout import outside
from shared.security.tokens import QueueToken, set_cookie
from shared.web.request import Field, Request


def context(request: Request) -> tuple[State, str]:
    """The state of this process and the event id of the path."""
    return request.state, request.path["event_id"]


async def fan_of(request: Request) -> tuple[State, str, QueueToken]:
    """As `context`, and the place of the fan, whose rate is checked. The body is empty."""
    state, event_id = context(request)
    token = await state.require_place(request.scope, event_id)
    state.rate_limits.check_fan(event_id, token.holder)
    await request.json(EmptyBody, empty=b"{}")
    return state, event_id, token


def cookie_field(state: State, name: Callable[..., str], event_id: str, value: str, *, max_age_s: int) -> Field:
    secure = state.settings.secure_cookies
    kept = set_cookie(name(event_id, secure=secure), value, max_age_s=max_age_s, secure=secure)
    return b"set-cookie", kept.encode()


def may_bypass(scope: Scope, line: LineSnapshot, token: QueueToken) -> bool:
    """Whether a place above the head may have been called nevertheless: it is outside the rollout, or was when it got
    its pass.
    """
    if line.rollout_percent < 100 and outside(token.event_id, token.holder, line.rollout_percent):
        return True
    return any(name == b"cookie" and b"onsale_pass_" in value for name, value in scope["headers"])
