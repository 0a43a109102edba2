"""Reads the messages of a stream of server-sent events, as our services write them: one line of data a message."""

from collections.abc import AsyncIterator

import httpx


async def messages(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    """Each message's event and data, until the stream ends; comments, ids and delays are passed over."""
    name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            yield name, value.removeprefix(" ")
