"""A reader as the documents advise: its positions are stored with its effects, in one transaction.

Run as a program it stops for ever between reading and writing down, to be killed there.
"""

import asyncio
import sys

import asyncpg
import redis.asyncio

from shared.messaging.log import START, EventLog, LogEntry
from shared.messaging.open_log import open_log
from shared.runtime.settings import ServiceSettings

TABLES = "CREATE TABLE effect (n serial, body text); CREATE TABLE reached (stream text PRIMARY KEY, position text)"
REACH = "INSERT INTO reached VALUES ($1, $2) ON CONFLICT (stream) DO UPDATE SET position = $2"


async def read(log: EventLog, source: str, ledger: asyncpg.Connection) -> list[LogEntry]:
    """What comes after what is stored, two at a time."""
    stored = {row["stream"]: row["position"] for row in await ledger.fetch("SELECT * FROM reached")}
    reached = {stream: stored.get(stream, START) for stream in await log.streams(source)}
    return await log.read(reached, count=2, wait_s=0.5)


async def write_down(entries: list[LogEntry], ledger: asyncpg.Connection) -> None:
    async with ledger.transaction():
        for entry in entries:
            await ledger.execute("INSERT INTO effect (body) VALUES ($1)", entry.body.decode())
            await ledger.execute(REACH, entry.stream, entry.position)


async def main(url: str, source: str, ledger_url: str) -> None:
    ledger = await asyncpg.connect(ledger_url)
    async with open_log(ServiceSettings(event_log_url=url), redis.asyncio.Redis()) as log:
        while not (entries := await read(log, source, ledger)):
            pass
        print("has read", len(entries), flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
