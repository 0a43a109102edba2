"""HTTP to servers that are not ours: payment providers, receivers of webhooks, identity providers.

Connections are kept and bounded for each server, every request has one deadline for all of it, and an answer that
grows too large is cut off. Redirects, proxies and cookies are not followed, used or kept. What can go wrong is told
apart by what the server can have heard: nothing (`NotReached`), or nobody knows (`AnswerLost`).
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import aiohttp
import certifi
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

ANSWER_MAX_BYTES = 8 * 1024 * 1024
CONNECT_SHARE = 0.5  # of a request's time, for a free connection and for connecting: more, and the server is away


class NotReached(ConnectionError):
    """No connection to the server could be made: it has heard nothing of this request."""


class AnswerLost(ConnectionError):
    """The request went out, and no whole answer came back: the server may have carried it out."""


class AnswerTooLarge(AnswerLost):
    """The answer was cut off; its status is known."""

    def __init__(self, status_code: int) -> None:
        super().__init__("AnswerTooLarge")
        self.status_code = status_code


class Answer(NamedTuple):
    """Status, header fields by name in any case, and the whole body as it was sent."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class Client(Protocol):
    """What can ask a server: `Outgoing`, or whatever stands in for a server in a test."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float
    ) -> Answer:
        """The whole answer within `timeout_s`. Raises `NotReached` or `AnswerLost`."""


class Outgoing:
    """Asks over one session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float,
        server_name: str | None = None, answer_max_bytes: int = ANSWER_MAX_BYTES,
    ) -> Answer:  # fmt: skip
        """As `Client` has it. `server_name` is whom the certificate must name if `url` has a bare address. Raises
        `AnswerTooLarge` for a body of more than `answer_max_bytes`.
        """
        limit = aiohttp.ClientTimeout(total=timeout_s, connect=timeout_s * CONNECT_SHARE)
        try:
            async with self._session.request(
                method, _address(url), headers=headers, data=content, timeout=limit, allow_redirects=False,
                server_hostname=server_name,
            ) as answer:  # fmt: skip
                body = await _whole(answer, answer_max_bytes)
                return Answer(answer.status, answer.headers, body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as away:
            raise NotReached(f"{type(away).__name__}: {away}") from away
        except (aiohttp.ClientError, TimeoutError) as lost:
            raise AnswerLost(type(lost).__name__) from lost


def _address(url: str) -> URL:
    try:
        address = URL(url, encoded=True)
        address.port  # noqa: B018 - whether it can be one is looked at only now
        return address
    except ValueError as broken:
        raise NotReached(f"{url} is no address: {broken}") from broken


async def _whole(answer: aiohttp.ClientResponse, answer_max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > answer_max_bytes:
            answer.close()
            raise AnswerTooLarge(answer.status)
        parts.append(part)
    return b"".join(parts)


class NoNames(AbstractResolver):
    """Resolves nothing: only addresses that were checked are connected to."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        raise OSError(f"{host} is a name, not an address")

    async def close(self) -> None:
        return


@asynccontextmanager
async def outgoing(
    *, connections_max: int, keep_open: bool = True, resolver: AbstractResolver | None = None
) -> AsyncIterator[Outgoing]:
    """A client with at most `connections_max` connections to each server; whoever comes then waits for one, within
    its deadline. Without `keep_open` each request has a connection of its own.
    """
    connector = aiohttp.TCPConnector(
        limit=0, limit_per_host=connections_max, force_close=not keep_open, resolver=resolver,
        ssl=ssl.create_default_context(cafile=certifi.where()),
    )  # fmt: skip
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False,
        headers={"accept-encoding": "identity", "user-agent": "onsale"}, skip_auto_headers=("content-type",),
    ) as session:  # fmt: skip
        yield Outgoing(session)
