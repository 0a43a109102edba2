"""Mail dispatcher: leases due mails, sends them by SMTP, and schedules retries.

Delivery is at least once; a retry has the same `Message-ID`, so a mailbox can drop it. A mail that the server rejects
for good is abandoned; one rejected for now, or of unknown outcome, is retried for a day with growing pauses. A mail
whose content is no longer true is not sent.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from typing import Any

import aiosmtplib
from sqlalchemy import delete, func, select, update

from services.orders.mail.compose import MailComposer, Obsolete, PendingMail, TooEarly
from services.orders.mail.tables import mail as mail_table
from services.orders.mail_settings import InvalidMailbox, parse_sender
from services.orders.metrics import MAILS
from services.orders.settings import Settings
from shared.concurrency.leased_queue import retry_pause_s
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.logging import get_logger
from shared.web.problems import Problem

log = get_logger("onsale.orders.mail")
_LEASE = statement(__package__, "lease_mails")
LEASE_S, SUBMIT_TIMEOUT_S, RUN_MAX_S = 120, 40, 60  # no mail is begun past RUN_MAX_S: the lease outlives the last one
RETRY_MAX_S, ABANDON_AFTER_S = 4 * 3600, 86_400
FORGET_AFTER_S, FORGET_ROWS = 30 * 86_400, 5_000
ERROR_MAX_CHARS = 300
Connect = Callable[[], AbstractAsyncContextManager[aiosmtplib.SMTP]]
Ready = tuple[PendingMail, EmailMessage]


@dataclass(frozen=True, slots=True)
class MailDispatcher:
    """The sending of one process: `run_once` is called once a second and sends at most `mails_per_s`."""

    db: AsyncEngine
    composer: MailComposer
    settings: Settings
    connect: Connect

    async def run_once(self) -> None:
        """Composes and sends the mails that are due now."""
        stop_at = _clock() + RUN_MAX_S
        async with self.db.begin() as connection:
            rows = await connection.execute(_LEASE, {"many": self.settings.mails_per_s, "lease_s": LEASE_S})
            leased = [PendingMail(**row) for row in rows.mappings()]
        ready = [(one, message) for one in leased if (message := await self._compose(one)) is not None]
        await self._send(ready, stop_at)

    async def _compose(self, one: PendingMail) -> EmailMessage | None:
        try:
            return await self.composer.compose(one, message_id=self._message_id(one))
        except TooEarly as early:
            await self._update(one, due_at=early.until)
        except Obsolete as reason:
            await self._abandon(one, str(reason), outcome="obsolete")
        except InvalidMailbox as invalid:
            await self._abandon(one, str(invalid), outcome="rejected")
        except Problem as problem:
            await self._retry(one, problem)
        except Exception as failed:  # one mail that cannot be composed must not stop the others
            log.exception("mail.compose_failed", mail_key=one.mail_key)
            await self._retry(one, failed)
        return None

    def _message_id(self, one: PendingMail) -> str:
        domain = parse_sender(self.settings.mail_from).domain
        return f"<{hashlib.sha256(one.mail_key.encode()).hexdigest()[:40]}@{domain or 'localhost'}>"

    async def _send(self, ready: Sequence[Ready], stop_at: float) -> None:
        """If a session breaks, the mail it was sending is retried later and the others are sent in a new session; if no
        session can be opened, all of them are retried later.
        """
        left = list(ready)
        while left:
            opened = False
            try:
                async with self.connect() as client:
                    opened = True
                    while left:
                        if _clock() > stop_at:
                            return
                        await self._submit(client, *left[0])
                        left.pop(0)
            except (aiosmtplib.SMTPException, OSError) as failed:
                failing, left = (left[:1], left[1:]) if opened else (left, [])
                for one, _ in failing:
                    await self._retry(one, failed)

    async def _submit(self, client: aiosmtplib.SMTP, one: PendingMail, message: EmailMessage) -> None:
        """Raises when the session is lost; a rejection of this mail alone is stored with it."""
        sender = parse_sender(self.settings.mail_from).addr_spec
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT_S):
                await client.sendmail(sender, [message["To"].addresses[0].addr_spec], message.as_bytes())
        except aiosmtplib.SMTPRecipientsRefused as refused:
            await self._on_rejection(one, refused.recipients[0])
        except (aiosmtplib.SMTPDataError, aiosmtplib.SMTPSenderRefused) as refused:
            await self._on_rejection(one, refused)
        else:
            await self._update(one, sent_at=func.now(), error=None)
            MAILS.labels(one.kind, "sent").inc()

    async def _on_rejection(self, one: PendingMail, refused: aiosmtplib.SMTPResponseException) -> None:
        """Abandons the mail on 5xx, except for a rejected sender: that is our configuration, which may be corrected."""
        if refused.code >= 500 and not isinstance(refused, aiosmtplib.SMTPSenderRefused):
            await self._abandon(one, f"{refused.code} {refused.message}", outcome="rejected")
        else:
            await self._retry(one, refused)

    async def _retry(self, one: PendingMail, failed: Exception) -> None:
        if one.age_s > ABANDON_AFTER_S:
            await self._abandon(one, repr(failed), outcome="abandoned")
            return
        pause_s = retry_pause_s(one.tries, first_s=self.settings.mail_retry_first_s, max_s=RETRY_MAX_S)
        log.info("mail.retry_scheduled", mail_key=one.mail_key, error=type(failed).__name__, in_s=round(pause_s))
        error, due_at = repr(failed)[:ERROR_MAX_CHARS], func.now() + timedelta(seconds=pause_s)
        await self._update(one, tries=one.tries + 1, error=error, due_at=due_at)
        MAILS.labels(one.kind, "retried").inc()

    async def _abandon(self, one: PendingMail, reason: str, *, outcome: str) -> None:
        if outcome != "obsolete":
            log.warning("mail.abandoned", mail_key=one.mail_key, outcome=outcome)
        await self._update(one, abandoned_at=func.now(), error=reason[:ERROR_MAX_CHARS])
        MAILS.labels(one.kind, outcome).inc()

    async def _update(self, one: PendingMail, **sets: Any) -> None:
        async with self.db.begin() as connection:
            await connection.execute(update(mail_table).where(mail_table.c.mail_key == one.mail_key).values(**sets))

    async def forget(self) -> None:
        """Deletes a batch of the mails of 30 days ago, and with them their addresses."""
        old = mail_table.c.created_at < func.now() - timedelta(seconds=FORGET_AFTER_S)
        keys = select(mail_table.c.mail_key).where(old).limit(FORGET_ROWS)
        async with self.db.begin() as connection:
            await connection.execute(delete(mail_table).where(mail_table.c.mail_key.in_(keys)))


def _clock() -> float:
    return asyncio.get_running_loop().time()
