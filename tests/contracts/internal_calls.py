"""Calls an internal endpoint of a service, or of its fake, and returns the parts of the answer that both must share."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import orjson
from starlette.types import ASGIApp

from shared.rpc import sign_service_call
from shared.security.tokens import development_keys

Answer = tuple[int, Any]
IGNORED = {"request_id", "detail", "instance", "title"}  # members of a problem that describe one case only
VARYING = {"at_ms", "until_ms", "expires_at_ms", "reserved_until_ms", "admission", "checkout_key", "version"}


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    """An HTTP client that calls the app without a network."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://service")


async def assert_same_answers(both: tuple[Any, Any], answers_of: Callable[[Any], Awaitable[Any]]) -> None:
    """Asks the real service and then its fake."""
    real, fake = [await answers_of(side) for side in both]
    assert fake == real


async def call_internal(client: httpx.AsyncClient, path: str, **request: Any) -> Answer:
    """Sends a signed request; returns the status and the comparable body."""
    content = orjson.dumps(request)
    headers = sign_service_call(development_keys("service"), "POST", f"/internal{path}", content)
    answer = await client.post(f"/internal{path}", content=content, headers=headers)
    return answer.status_code, comparable(answer.json())


def comparable(body: Any) -> Any:
    """The body without ignored fields; a varying field becomes whether it has a value."""
    if isinstance(body, dict):
        kept = {name: value for name, value in body.items() if name not in IGNORED}
        return {
            name: (value is not None) if name in VARYING else comparable(value) for name, value in sorted(kept.items())
        }
    return [comparable(each) for each in body] if isinstance(body, list) else body
