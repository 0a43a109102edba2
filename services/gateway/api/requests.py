"""What the fast handlers of the line share: the context of a request, an optional body, a cookie, the rollout."""

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel
from starlette.types import Receive, Scope

from services.gateway.api.schemas import EmptyBody
from services.gateway.state import State
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.rules.rollout import outside
from shared.security.credentials import set_cookie
from shared.security.tokens import QueueToken
from shared.web.fast_routes import QUIET_KEY, parse_model, read_body

Body = TypeVar("Body", bound=BaseModel)


def context(scope: Scope) -> tuple[State, str]:
    """The state of this process and the event id of the path."""
    scope[QUIET_KEY] = True
    return scope["app"].state.deps, scope["path_params"]["event_id"]


async def fan_of(scope: Scope, receive: Receive) -> tuple[State, str, QueueToken]:
    """As `context`, and the place of the fan, whose rate is checked. The body is empty."""
    state, event_id = context(scope)
    token = await state.require_place(scope, event_id)
    state.rate_limits.check_fan(event_id, token.holder)
    await read_optional(receive, EmptyBody)
    return state, event_id, token


async def read_optional(receive: Receive, model: type[Body]) -> Body:
    """As `read_model`; an empty body is an empty object."""
    return parse_model(await read_body(receive) or b"{}", model)


def cookie_header(
    state: State, name: Callable[..., str], event_id: str, value: str, *, max_age_s: int
) -> tuple[bytes, bytes]:
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
