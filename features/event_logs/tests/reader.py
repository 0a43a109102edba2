"""A reader as the documentation advises: it stores its positions with its effects, in one transaction.

Run as a program it reads and then waits for ever before it stores anything, so that a test can kill it there.
"""

import asyncio
import sys

import asyncpg
import redis.asyncio

from shared.messaging.log import START, EventLog, LogEntry, open_log
from shared.process.settings import ServiceSettings

TABLES = (
    "CREATE TABLE effect (n serial, body text); CREATE TABLE reader_position (stream text PRIMARY KEY, position text)"
)
STORE_POSITION = "INSERT INTO reader_position VALUES ($1, $2) ON CONFLICT (stream) DO UPDATE SET position = $2"


async def read(log: EventLog, source: str, connection: asyncpg.Connection) -> list[LogEntry]:
    """The next two entries after the stored positions."""
    stored = {row["stream"]: row["position"] for row in await connection.fetch("SELECT * FROM reader_position")}
    positions = {stream: stored.get(stream, START) for stream in await log.streams(source)}
    return await log.read(positions, count=2, wait_s=0.5)


async def store(entries: list[LogEntry], connection: asyncpg.Connection) -> None:
    async with connection.transaction():
        for entry in entries:
            await connection.execute("INSERT INTO effect (body) VALUES ($1)", entry.body.decode())
            await connection.execute(STORE_POSITION, entry.stream, entry.position)


async def main(url: str, source: str, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    async with open_log(ServiceSettings(event_log_url=url), redis.asyncio.Redis()) as log:
        while not (entries := await read(log, source, connection)):
            pass
        print("has read", len(entries), flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
