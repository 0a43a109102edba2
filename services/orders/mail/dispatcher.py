"""Sends the mail that is owed: leased by rows, at least once, with an id that stays, so that a mailbox can tell.

What the server refuses for good is given up; what it refuses for now, or what we do not know the fate of, is tried
again for a day, ever less often. A mail that is no longer true is not sent.
"""

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import Any

import aiosmtplib
from sqlalchemy import delete, func, update

from services.orders.mail.compose import MailComposer, Obsolete, PendingMail, TooEarly
from services.orders.mail.smtp import NoMailbox, address_of
from services.orders.metrics import MAILS
from services.orders.settings import Settings
from services.orders.tickets.tables import mail as mail_table
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.logging import data
from shared.web.problems import Problem

log = logging.getLogger("onsale.orders.mail")
_TAKE = statement(__package__, "take_mails")
LEASE_S, HAND_IN_S, TURN_S = 120, 40, 60  # no new mail is begun past TURN_S, so that the lease outlives the last
RETRY_MAX_S, GIVE_UP_AFTER_S = 4 * 3600, 86_400
FORGET_AFTER_S, FORGET_ROWS = 30 * 86_400, 5_000
ERROR_MAX_CHARS = 300
Connect = Callable[[], AbstractAsyncContextManager[aiosmtplib.SMTP]]
Ready = tuple[PendingMail, EmailMessage]


@dataclass(frozen=True, slots=True)
class MailDispatcher:
    """One process's share of the sending: at most `mails_per_s` a turn, and a turn a second."""

    db: AsyncEngine
    writer: MailComposer
    settings: Settings
    connect: Connect

    async def turn(self) -> None:
        """Whatever is due now, as much as may be sent in a second."""
        over_at = _clock() + TURN_S
        async with self.db.begin() as connection:
            rows = await connection.execute(_TAKE, {"many": self.settings.mails_per_s, "lease_s": LEASE_S})
            owed = [PendingMail(*row) for row in rows]
        ready = [(one, message) for one in owed if (message := await self._written(one)) is not None]
        await self._send(ready, over_at)

    async def _written(self, one: PendingMail) -> EmailMessage | None:
        try:
            return await self.writer.compose(one, message_id=self._message_id(one))
        except TooEarly as wait:
            await self._mark(one, due_at=wait.until)
        except Obsolete as why:
            await self._give_up(one, str(why), outcome="not-true")
        except NoMailbox as broken:
            await self._give_up(one, str(broken), outcome="refused")
        except Problem as away:
            await self._retry(one, away)
        except Exception as broken:  # one that cannot be written must not stop the others
            log.exception("mail.not_written", extra=data(mail_key=one.mail_key))
            await self._retry(one, broken)
        return None

    def _message_id(self, one: PendingMail) -> str:
        domain = address_of(self.settings.mail_from).domain
        return f"<{hashlib.sha256(one.mail_key.encode()).hexdigest()[:40]}@{domain or 'localhost'}>"

    async def _send(self, ready: Sequence[Ready], over_at: float) -> None:
        """A session that breaks costs one mail another try; without a session all of them wait."""
        left = list(ready)
        while left:
            begun = False
            try:
                async with self.connect() as client:
                    begun = True
                    while left:
                        if _clock() > over_at:
                            return
                        await self._submit(client, *left[0])
                        left.pop(0)
            except (aiosmtplib.SMTPException, OSError) as failed:
                late, left = (left[:1], left[1:]) if begun else (left, [])
                for one, _ in late:
                    await self._retry(one, failed)

    async def _submit(self, client: aiosmtplib.SMTP, one: PendingMail, message: EmailMessage) -> None:
        """Raises when the session is lost; what the server says of this mail alone is written down."""
        sender = address_of(self.settings.mail_from).addr_spec
        try:
            async with asyncio.timeout(HAND_IN_S):
                await client.sendmail(sender, [message["To"].addresses[0].addr_spec], message.as_bytes())
        except aiosmtplib.SMTPRecipientsRefused as refused:
            await self._refused(one, refused.recipients[0])
        except (aiosmtplib.SMTPDataError, aiosmtplib.SMTPSenderRefused) as refused:
            await self._refused(one, refused)
        else:
            await self._mark(one, sent_at=func.now(), error=None)
            MAILS.labels(one.kind, "sent").inc()

    async def _refused(self, one: PendingMail, refused: aiosmtplib.SMTPResponseException) -> None:
        """A sender who is refused is our mistake, which somebody will put right."""
        if refused.code >= 500 and not isinstance(refused, aiosmtplib.SMTPSenderRefused):
            await self._give_up(one, f"{refused.code} {refused.message}", outcome="refused")
        else:
            await self._retry(one, refused)

    async def _retry(self, one: PendingMail, failed: Exception) -> None:
        if one.age_s > GIVE_UP_AFTER_S:
            await self._give_up(one, repr(failed), outcome="given-up")
            return
        pause_s = min(RETRY_MAX_S, self.settings.mail_retry_first_s * 2 ** min(one.tries, 20))
        pause_s *= 0.75 + random.random() / 2  # noqa: S311 - jitter
        error = repr(failed)[:ERROR_MAX_CHARS]
        log.info("mail.again", extra=data(mail_key=one.mail_key, error=type(failed).__name__, in_s=round(pause_s)))
        await self._mark(one, tries=one.tries + 1, error=error, due_at=func.now() + timedelta(seconds=pause_s))
        MAILS.labels(one.kind, "later").inc()

    async def _give_up(self, one: PendingMail, why: str, *, outcome: str) -> None:
        if outcome != "not-true":
            log.warning("mail.given_up", extra=data(mail_key=one.mail_key, outcome=outcome))
        await self._mark(one, given_up_at=func.now(), error=why[:ERROR_MAX_CHARS])
        MAILS.labels(one.kind, outcome).inc()

    async def _mark(self, one: PendingMail, **sets: Any | datetime) -> None:
        row = mail_table.c.mail_key == one.mail_key
        async with self.db.begin() as connection:
            await connection.execute(update(mail_table).where(row).values(**sets))

    async def forget(self) -> None:
        """Mail of a month ago, and whose address it went to, is nobody's business."""
        old = mail_table.c.created_at < func.now() - timedelta(seconds=FORGET_AFTER_S)
        keys = mail_table.select().with_only_columns(mail_table.c.mail_key).where(old).limit(FORGET_ROWS)
        async with self.db.begin() as connection:
            await connection.execute(delete(mail_table).where(mail_table.c.mail_key.in_(keys)))


def _clock() -> float:
    return asyncio.get_running_loop().time()
