"""Limits the unpaid mails that one inbox gets in a day (UTC), over all kinds and processes: anybody can type anybody's
address.

Reminders and links sent again may use half of the limit, so that they never hold back the mails of somebody's own
order. A mail about a payment or a refund is neither counted nor held back. A mail is counted before it is sent; it is
uncounted if the server rejected it. Counted is a hash of the inbox, and forgotten after two days.
"""

from dataclasses import dataclass
from datetime import date
from typing import Literal

from sqlalchemy import delete, func, update

from services.orders.tables import mail_recipient
from shared.postgres.engine import AsyncEngine, statement
from shared.rules.addresses import inbox_of, normalize_email
from shared.security.tokens import Keyring, b64

Budget = Literal["asked", "own"]
_TAKE = statement(__package__, "take_mail")
KEPT_DAYS = 2


@dataclass(frozen=True, slots=True)
class Taken:
    """One mail of a recipient's day."""

    recipient: str
    day: date


@dataclass(frozen=True, slots=True)
class RecipientLimits:
    """At most `per_day` mails to one inbox."""

    db: AsyncEngine
    keys: Keyring
    per_day: int

    async def take(self, address: str, budget: Budget) -> Taken | None:
        """Counts a mail to this address; None if its inbox got as many as it may today."""
        recipient = b64(self.keys.mac("recipient", inbox_of(normalize_email(address))))
        mails_max = self.per_day if budget == "own" else self.per_day // 2
        async with self.db.begin() as connection:
            day = await connection.scalar(_TAKE, {"recipient": recipient, "mails_max": mails_max})
        return Taken(recipient, day) if day is not None else None

    async def give_back(self, taken: Taken) -> None:
        mine = (mail_recipient.c.recipient == taken.recipient) & (mail_recipient.c.day == taken.day)
        async with self.db.begin() as connection:
            await connection.execute(update(mail_recipient).where(mine).values(mails=mail_recipient.c.mails - 1))

    async def forget(self) -> None:
        async with self.db.begin() as connection:
            old = mail_recipient.c.day < func.current_date() - KEPT_DAYS
            await connection.execute(delete(mail_recipient).where(old))
