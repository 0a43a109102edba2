"""Reads the messages of a stream of server-sent events, as our services write them: one line of data a message."""

from collections.abc import AsyncGenerator, AsyncIterable
from typing import NamedTuple


class Message(NamedTuple):
    """One message. `id` is what a reconnecting client sends; `retry_s` what the stream last said of reconnecting."""

    event: str
    data: str
    id: str | None
    retry_s: float | None


async def messages(lines: AsyncIterable[str]) -> AsyncGenerator[Message]:
    """Each message of a stream's lines, without their ends; comments are passed over."""
    name, last_id, retry_s = "", None, None
    async for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "id":
            last_id = value
        elif field == "retry" and value.isdigit():
            retry_s = int(value) / 1000
        elif field == "data":
            yield Message(name, value, last_id, retry_s)
