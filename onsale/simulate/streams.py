"""The streams of a crowd, over one aiohttp session. Imported only where a crowd is about to come: aiohttp is slow to
import.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Self

import aiohttp
from yarl import URL

from onsale.client import Problem
from onsale.client.connection import NO_ANSWER, STREAM_SILENT_MAX_S
from onsale.server_sent_events import Message, messages
from shared.http.http1 import HttpResponse

LINE_MAX_BYTES = 1024 * 1024


class CrowdStreams:
    """Connections for any number of streams, each closed with its stream. Use inside `async with`."""

    def __init__(self, *, connect_s: float) -> None:
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=STREAM_SILENT_MAX_S)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True), cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False, headers={"accept-encoding": "identity"},
        )  # fmt: skip

    async def messages(self, url: str, headers: dict[str, str]) -> AsyncGenerator[Message]:
        """The messages of the stream at this address. Raises `Problem`."""
        address = URL(url, encoded=True)
        try:
            async with self._session.get(
                address, headers=headers, allow_redirects=False, timeout=self._timeout
            ) as answer:
                if answer.status >= 400:
                    fields = {name.lower(): value for name, value in answer.headers.items()}
                    raise Problem.of(HttpResponse(answer.status, fields, await answer.read()))
                async for message in messages(_lines(answer.content)):
                    yield message
        except (aiohttp.ClientError, TimeoutError) as lost:
            raise Problem(NO_ANSWER) from lost

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    """Each line as soon as it is there; those that came together are read together."""
    rest = b""
    async for received in content.iter_any():
        *lines, rest = (rest + received).split(b"\n")
        if len(rest) > LINE_MAX_BYTES:
            raise aiohttp.ClientPayloadError("a line of a stream is too long")
        for line in lines:
            yield line.decode().removesuffix("\r")
