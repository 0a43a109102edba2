"""HTTP to servers outside the suite: payment providers, receivers of webhooks, identity providers.

Connections are kept alive and limited per server; each request has one deadline for all of it; a response that grows
too large is cut off. Redirects are not followed, proxies and cookies not used. Errors say what the server can have
received: nothing (`NotReached`), or it is unknown (`ResponseLost`).
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import NamedTuple, Protocol

import aiohttp
import certifi
from aiohttp.abc import AbstractResolver, ResolveResult
from opentelemetry.trace import SpanKind
from yarl import URL

from shared.runtime import tracing

ANSWER_MAX_BYTES = 8 * 1024 * 1024
CONNECT_SHARE = 0.5  # of a request's time, to get a connection; longer, and the server counts as unreachable


class NotReached(ConnectionError):
    """No connection could be opened: the server has received nothing of this request."""


class ResponseLost(ConnectionError):
    """The request was sent and no complete response came: the server may have processed it."""


class ResponseTooLarge(ResponseLost):
    """The response was cut off; its status is known."""

    def __init__(self, status_code: int) -> None:
        super().__init__("ResponseTooLarge")
        self.status_code = status_code


class ExternalResponse(NamedTuple):
    """Status, case-insensitive headers, and the whole body as sent, not decompressed."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class ExternalClient(Protocol):
    """Sends a request to an external server: `ExternalHttpClient`, or a stand-in in a test."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float
    ) -> ExternalResponse:
        """The complete response within `timeout_s`. Raises `NotReached` or `ResponseLost`."""


class ExternalHttpClient:
    """Sends requests over one aiohttp session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float,
        server_name: str | None = None, answer_max_bytes: int = ANSWER_MAX_BYTES,
    ) -> ExternalResponse:  # fmt: skip
        """As `ExternalClient.request`. `server_name` is the host that the certificate must name if `url` has an IP.

        Raises `ResponseTooLarge` for a body of more than `answer_max_bytes`.
        """
        limit = aiohttp.ClientTimeout(total=timeout_s, connect=timeout_s * CONNECT_SHARE)
        try:
            with tracing.span(f"external {method}", kind=SpanKind.CLIENT):
                async with self._session.request(
                    method, _address(url), headers={**headers, **tracing.headers()}, data=content, timeout=limit,
                    allow_redirects=False, server_hostname=server_name,
                ) as answer:  # fmt: skip
                    body = await _read_body(answer, answer_max_bytes)
                    return ExternalResponse(answer.status, answer.headers, body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as away:
            raise NotReached(f"{type(away).__name__}: {away}") from away
        except (aiohttp.ClientError, TimeoutError) as lost:
            raise ResponseLost(type(lost).__name__) from lost


def _address(url: str) -> URL:
    try:
        address = URL(url, encoded=True)
        address.port  # noqa: B018 - the port is parsed only here
        return address
    except ValueError as broken:
        raise NotReached(f"{url} is not a valid URL: {broken}") from broken


async def _read_body(answer: aiohttp.ClientResponse, answer_max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > answer_max_bytes:
            answer.close()
            raise ResponseTooLarge(answer.status)
        parts.append(part)
    return b"".join(parts)


class NoDnsResolver(AbstractResolver):
    """Resolves no names: only addresses checked beforehand are connected to."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        raise OSError(f"{host} is a name, not an address")

    async def close(self) -> None:
        return


@cache
def _trusting(authorities: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authorities)


@asynccontextmanager
async def external_http_client(
    *, connections_max: int, keep_open: bool = True, resolver: AbstractResolver | None = None
) -> AsyncIterator[ExternalHttpClient]:
    """A client with at most `connections_max` connections to each server; further requests wait within their deadline.

    Without `keep_open` each request has a connection of its own.
    """
    connector = aiohttp.TCPConnector(
        limit=0, limit_per_host=connections_max, force_close=not keep_open, resolver=resolver,
        ssl=_trusting(certifi.where()),
    )  # fmt: skip
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False,
        headers={"accept-encoding": "identity", "user-agent": "onsale"}, skip_auto_headers=("content-type",),
    ) as session:  # fmt: skip
        yield ExternalHttpClient(session)
