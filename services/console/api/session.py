"""The operator's session: sign in with a key or a one-time link, see who is signed in, sign out."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from services.console.sign_in import clear_session, set_session
from services.console.state import StateDep
from shared.contracts.admin.console import READ_SESSION, SIGN_IN, Session, SignIn
from shared.security.auth import OperatorSession, session_cookie, sign_session, signed_in
from shared.security.limits import client_address
from shared.security.tokens import HOST_ONLY, header_fields, require_own_origin

router = APIRouter(tags=["console"])
NO_STORE = "no-store"


@router.post(
    SIGN_IN.path, summary="Sign in with a key or a one-time link", openapi_extra={"security": []},
    responses={401: {"description": "A wrong key, or a link that was used"}, 403: {"description": "A foreign page"}},
)  # fmt: skip
async def sign_in(request: Request, wanted: SignIn, state: StateDep, response: Response) -> Session:
    """Sets the cookie of a session of eight hours. After five wrong keys a minute and address the others are
    answered 429; the right one is accepted at any time.
    """
    if "origin" in request.headers:
        _require_own_page(request)
    address = client_address(request.scope, state.settings.trusted_proxies)
    session = await state.sessions.sign_in(wanted, address)
    text = sign_session(state.settings.service_keys, session)
    response.headers["set-cookie"] = set_session(request.scope, text)
    response.headers["cache-control"] = NO_STORE
    return _shown(session)


@router.get(READ_SESSION.path, summary="Get who is signed in")
async def read_session(request: Request, response: Response) -> Session:
    response.headers["cache-control"] = NO_STORE
    return _shown(signed_in(request))


@router.delete(READ_SESSION.path, status_code=204, summary="Sign out in this browser")
async def sign_out(request: Request, response: Response) -> None:
    _require_own_page(request)
    response.headers["set-cookie"] = clear_session(request.scope)


def _require_own_page(request: Request) -> None:
    fields = header_fields(request.scope)
    require_own_origin(fields, secure=session_cookie(fields).startswith(HOST_ONLY))


def _shown(session: OperatorSession) -> Session:
    name, role = session.operator
    return Session(name=name, role=role, expires_at=datetime.fromtimestamp(session.expires_at_s, UTC))
