"""Mail dispatcher: leases due mails, sends them by SMTP, and schedules retries.

Delivery is at least once; a retry has the same `Message-ID`, so a mailbox can drop it. A mail that the server rejects
for good is abandoned; one rejected for now, or of unknown outcome, is retried for a day with growing pauses. A mail
whose content is no longer true is not sent. The order of a mail that was given up says so to its buyer.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from email.message import EmailMessage
from math import ceil
from typing import Any

import aiosmtplib
from prometheus_client import Counter
from sqlalchemy import Column, Date, Index, Integer, Table, Text, delete, func, select, tuple_, update

from features.mail.orders.compose import Budget, MailComposer, Obsolete, PendingMail, TooEarly
from features.mail.orders.smtp import InvalidMailbox, MailServer, needs_smtputf8, parse_sender
from services.orders.tables import mail as mail_table
from services.orders.tables import metadata
from services.orders.tables import order as order_table
from shared.concurrency.background import Quiet, retry_pause_s
from shared.errors.problems import Problem
from shared.postgres.engine import AsyncEngine, statement
from shared.rules.addresses import inbox_of, normalize_email
from shared.runtime.logging import get_logger
from shared.runtime.metrics import with_series
from shared.security.tokens import b64

mail_recipient = Table(
    "mail_recipient",
    metadata,
    Column("recipient", Text, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("mails", Integer, nullable=False),
    Index("ix_mail_recipient_day", "day"),
)

log = get_logger("onsale.orders.mail")
MAILS = with_series(
    Counter("orders_mails_total", "Mails sent, by outcome.", ["kind", "outcome"]),
    kind=("confirmed", "refunded", "oversold", "late", "remind", "hold_over"),
    outcome=("sent", "retried", "rejected", "abandoned", "suppressed", "obsolete"),
)
_LEASE, _TAKE = statement(__package__, "lease_mails"), statement(__package__, "take_mail")
LEASE_S, SUBMIT_TIMEOUT_S, RUN_MAX_S = 120, 40, 60  # no mail is begun past RUN_MAX_S: the lease outlives the last one
RETRY_FIRST_S, RETRY_MAX_S, ABANDON_AFTER_S = 30.0, 4 * 3600, 86_400  # the first pause of a mail; it doubles
MAILS_PER_ADDRESS = 8  # mails without a payment to one address a day; half may be reminders and links again
FORGET_AFTER_S, FORGET_ROWS, COUNTS_KEPT_DAYS = 30 * 86_400, 5_000, 2
ERROR_MAX_CHARS = 300
QUIET_S = 5.0  # how late a mail may be that waits for its time
Ready = tuple[PendingMail, EmailMessage]
Taken = tuple[str, date]  # one mail of a recipient's day


@dataclass(frozen=True, slots=True)
class MailDispatcher:
    """The sending of one process: `run_once` is called once a second and sends at most its part of `mails_per_s`.

    An inbox gets a limited number of unpaid mails a day (UTC), over all kinds and processes: anybody can type anybody's
    address. Reminders and links sent again may use half of it, so that they never hold back the mails of somebody's own
    order. A mail about a payment or a refund is neither counted nor held back. A mail is counted before it is sent; it
    is uncounted if the server rejected it. Counted is a hash of the inbox, and forgotten after two days.
    """

    db: AsyncEngine
    composer: MailComposer
    server: MailServer

    async def run_once(self) -> Quiet | None:
        """Composes and sends the mails that are due now."""
        stop_at = time.monotonic() + RUN_MAX_S
        async with self.db.begin() as connection:
            many = ceil(self.composer.mail.mails_per_s / self.composer.settings.processes)
            rows = await connection.execute(_LEASE, {"many": many, "lease_s": LEASE_S})
            leased = [PendingMail(**row) for row in rows.mappings()]
        ready = [(one, message) for one in leased if (message := await self._compose(one)) is not None]
        await self._send(ready, stop_at)
        return None if leased else Quiet(QUIET_S)

    async def _compose(self, one: PendingMail) -> EmailMessage | None:
        try:
            return await self.composer.compose(one)
        except TooEarly as early:
            await self._update(one, due_at=early.until)
        except Obsolete as reason:
            await self._abandon(one, str(reason), outcome="obsolete")
        except InvalidMailbox as invalid:
            await self._abandon(one, str(invalid), outcome="rejected")
        except Exception as failed:  # one mail that cannot be composed must not stop the others
            if not isinstance(failed, Problem):
                log.exception("mail.compose_failed", mail_key=one.mail_key)
            await self._retry(one, failed)
        return None

    async def _send(self, ready: Sequence[Ready], stop_at: float) -> None:
        """If a session breaks, the mail it was sending is retried later and the others are sent in a new session; if no
        session can be opened, all of them are retried later.
        """
        left = list(ready)
        while left:
            opened = False
            try:
                async with self.server.session() as client:
                    opened = True
                    while left:
                        if time.monotonic() > stop_at:
                            return
                        await self._submit(client, *left[0])
                        left.pop(0)
            except (aiosmtplib.SMTPException, OSError) as failed:
                failing, left = (left[:1], left[1:]) if opened else (left, [])
                for one, _ in failing:
                    await self._retry(one, failed)

    async def _submit(self, client: aiosmtplib.SMTP, one: PendingMail, message: EmailMessage) -> None:
        """Raises when the session is lost; a rejection of this mail alone is stored with it."""
        utf8 = needs_smtputf8(one.address)
        if utf8 and not client.supports_extension("smtputf8"):
            await self._abandon(one, "the mail server has no SMTPUTF8", outcome="rejected")
        elif await self._address(one) != one.address:
            await self._update(one, due_at=func.now())  # its buyer corrected it meanwhile
        elif (budget := one.counts_as) is None:
            await self._hand_over(client, one, message, utf8=utf8)
        elif (taken := await self.take(one.address, budget)) is None:
            await self._abandon(one, "the address got its mails of today", outcome="suppressed")
        elif not await self._hand_over(client, one, message, utf8=utf8):
            await self.give_back(taken)

    async def _hand_over(self, client: aiosmtplib.SMTP, one: PendingMail, message: EmailMessage, *, utf8: bool) -> bool:
        """Whether the server accepted the mail. Raises when the session is lost: then it may have."""
        sender = parse_sender(self.composer.mail.mail_from).addr_spec
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT_S):
                await client.sendmail(
                    sender, [message["To"].addresses[0].addr_spec], message.as_bytes(),
                    mail_options=["SMTPUTF8"] if utf8 else [],
                )  # fmt: skip
        except (aiosmtplib.SMTPRecipientsRefused, aiosmtplib.SMTPDataError) as failed:
            refused = failed.recipients[0] if isinstance(failed, aiosmtplib.SMTPRecipientsRefused) else failed
            if refused.code >= 500:
                await self._abandon(one, f"{refused.code} {refused.message}", outcome="rejected")
            else:
                await self._retry(one, refused)
        except aiosmtplib.SMTPSenderRefused as refused:  # that is our configuration, which may be corrected
            await self._retry(one, refused)
        else:
            await self._update(one, unmailed=False, sent_at=func.now(), error=None)
            MAILS.labels(one.kind, "sent").inc()
            return True
        return False

    async def take(self, address: str, budget: Budget) -> Taken | None:
        """Counts a mail to this address; None if its inbox got as many as it may today."""
        recipient = b64(self.composer.settings.customer_keys.mac("recipient", inbox_of(normalize_email(address))))
        mails_max = MAILS_PER_ADDRESS // (1 if budget == "own" else 2)
        async with self.db.begin() as connection:
            day = await connection.scalar(_TAKE, {"recipient": recipient, "mails_max": mails_max})
        return (recipient, day) if day is not None else None

    async def give_back(self, taken: Taken) -> None:
        mine = tuple_(mail_recipient.c.recipient, mail_recipient.c.day) == taken
        async with self.db.begin() as connection:
            await connection.execute(update(mail_recipient).where(mine).values(mails=mail_recipient.c.mails - 1))

    async def _retry(self, one: PendingMail, failed: Exception) -> None:
        if one.age_s > ABANDON_AFTER_S:
            await self._abandon(one, repr(failed), outcome="abandoned")
            return
        pause_s = retry_pause_s(one.tries, first_s=RETRY_FIRST_S, max_s=RETRY_MAX_S)
        log.info("mail.retry_scheduled", mail_key=one.mail_key, error=type(failed).__name__, in_s=round(pause_s))
        error, due_at = repr(failed)[:ERROR_MAX_CHARS], func.now() + timedelta(seconds=pause_s)
        await self._update(one, tries=one.tries + 1, error=error, due_at=due_at)
        MAILS.labels(one.kind, "retried").inc()

    async def _abandon(self, one: PendingMail, reason: str, *, outcome: str) -> None:
        """The order's page says so, unless the mail is no longer true, or somebody asked for too many of them."""
        if outcome != "obsolete":
            log.warning("mail.abandoned", mail_key=one.mail_key, outcome=outcome)
        unsaid = outcome == "obsolete" or (outcome == "suppressed" and one.counts_as == "asked")
        sets = {"abandoned_at": func.now(), "error": reason[:ERROR_MAX_CHARS]}
        await self._update(one, unmailed=None if unsaid else True, **sets)
        MAILS.labels(one.kind, outcome).inc()

    async def _address(self, one: PendingMail) -> str | None:
        async with self.db.connect() as connection:
            found: str | None = await connection.scalar(
                select(mail_table.c.address).where(mail_table.c.mail_key == one.mail_key)
            )
        return found

    async def _update(self, one: PendingMail, *, unmailed: bool | None = None, **sets: Any) -> None:
        """Changes a mail, and writes to its order whether its buyer could not be mailed; None leaves that as it is."""
        changed = {"version": order_table.c.version + 1}
        mine = [order_table.c.reference == one.reference, order_table.c.customer_email == one.address]
        mine.append(order_table.c.unmailed_at.is_(None) if unmailed else order_table.c.unmailed_at.is_not(None))
        async with self.db.begin() as connection:  # the order first, as its steps lock it
            if one.reference and unmailed is not None:
                at = func.now() if unmailed else None
                await connection.execute(update(order_table).where(*mine).values(unmailed_at=at, **changed))
            await connection.execute(update(mail_table).where(mail_table.c.mail_key == one.mail_key).values(**sets))
        if one.reference and unmailed:
            await self.composer.store.forget_sold([one.reference])

    async def forget(self) -> None:
        """Deletes a batch of the mails of 30 days ago, and with them their addresses; and yesterday's counts."""
        old = mail_table.c.created_at < func.now() - timedelta(seconds=FORGET_AFTER_S)
        keys = select(mail_table.c.mail_key).where(old).limit(FORGET_ROWS)
        async with self.db.begin() as connection:
            await connection.execute(delete(mail_table).where(mail_table.c.mail_key.in_(keys)))
            past = mail_recipient.c.day < func.current_date() - COUNTS_KEPT_DAYS
            await connection.execute(delete(mail_recipient).where(past))
