"""The books after a sale: compared again and again until its last payments are through."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from onsale.admin_client import AdminClient
from onsale.data_dir import admin_key

SETTLE_S, QUIET_S, READ_INTERVAL_S = 150.0, 4.0, 1.0


async def what_stays_wrong(
    read: Callable[[], Awaitable[list[str]]], *, settle_s: float = SETTLE_S, quiet_s: float = QUIET_S
) -> list[str]:
    """What is wrong, a sentence each, once nothing has been for `quiet_s` or after `settle_s`."""
    deadline_s, quiet_since_s = time.monotonic() + settle_s, 0.0
    while True:
        wrong = await read()
        now_s = time.monotonic()
        quiet_since_s = 0.0 if wrong else (quiet_since_s or now_s)
        if now_s > deadline_s or (quiet_since_s and now_s - quiet_since_s >= quiet_s):
            return wrong
        await asyncio.sleep(READ_INTERVAL_S)


async def wrong_books(url: str, data_dir: Path, event_id: str, history: Path) -> list[str]:
    """The promises to fans and the invariants that stay broken once no payment is on its way any more: what the history
    says that fans were told, the databases of the suite at `url`, and the provider's list of charges.
    """
    from onsale.history.reading import report_on  # as slow to import as what it reads with

    async def read() -> list[str]:
        audit = await admin.audit(event_id)
        report = await report_on(history, [event_id], data_dir, None)
        return [violation.sentence for violation in report.violations] + [
            f"{row.service}: {row.invariant}: {row.detail}" for row in audit if not row.holds
        ]

    async with httpx.AsyncClient(trust_env=False) as client:
        admin = AdminClient(client, url, admin_key(data_dir))
        return await what_stays_wrong(read)
