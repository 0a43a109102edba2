"""Who asks: the holder of a pass for this event. A reservation's holder may still see it after the pass expired."""

from starlette.requests import HTTPConnection

from services.inventory.layout import Layout
from shared.auth import pass_cookie, require_credential
from shared.clock import now_s
from shared.problems import BadCredential, UnknownReservation, WrongEvent
from shared.tokens import Pass, PassReader


def admitted(connection: HTTPConnection, passes: PassReader, event_id: str, *, allow_expired: bool = False) -> Pass:
    """The pass in the Bearer header or in this event's cookie; raises `WrongEvent` for another event's."""
    token = require_credential(connection, pass_cookie(event_id))
    admission = passes.read(token, now_s=now_s(), allow_expired=allow_expired)
    if admission.event_id != event_id:
        raise WrongEvent
    return admission


def still_good(admission: Pass, layout: Layout) -> Pass:
    """Raises `BadCredential` for a pass from before a reset: it looks at nothing and takes nothing any more."""
    if admission.epoch < layout.pass_floor:
        raise BadCredential("The waiting room was reset; this pass belongs to the line before.")
    return admission


def require_owner(admission: Pass, holder: str, *, until_ms: int) -> None:
    """Raises `UnknownReservation` for somebody else's, `BadCredential` once an expired pass is of no use any more."""
    if admission.holder != holder:
        raise UnknownReservation
    if now_s() > max(admission.expires_at_s, until_ms / 1000):
        raise BadCredential("This pass has expired.")
