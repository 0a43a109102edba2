"""A neighbour's question as it comes over the wire, to a service or to what stands in for it; and its answer."""

from typing import Any

import httpx
import orjson
from starlette.types import ASGIApp

from shared.runtime.settings import development_keys
from shared.security.auth import sign_service_call

Answer = tuple[int, Any]
OF_ITS_OWN = {"request_id", "detail", "instance", "title"}  # of a problem: what is said of this one case
VARYING = {"at_ms", "until_ms", "expires_at_ms", "reserved_until_ms", "admission", "checkout_key", "version"}


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    """Asks it without a network between."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://neighbour")


async def call_internal(client: httpx.AsyncClient, path: str, **question: Any) -> Answer:
    """Status and body."""
    body = orjson.dumps(question)
    headers = sign_service_call(development_keys("service"), "POST", f"/internal{path}", body)
    answer = await client.post(f"/internal{path}", content=body, headers=headers)
    return answer.status_code, alike(answer.json())


def alike(told: Any) -> Any:
    """Without what differs from one time to the next: of that only whether it is there."""
    if isinstance(told, dict):
        kept = {name: value for name, value in told.items() if name not in OF_ITS_OWN}
        return {name: (value is not None) if name in VARYING else alike(value) for name, value in sorted(kept.items())}
    return [alike(each) for each in told] if isinstance(told, list) else told
