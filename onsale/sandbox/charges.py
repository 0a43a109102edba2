"""Takes a charge through its states as its method demands: the books first, then the events.

Money that moved is never forgotten: every change is one write to the books, and a success still to come is written down
with its time, so that a restart keeps the promise.
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Literal

import orjson

from onsale.sandbox.behaviours import BEHAVIOURS, Method, Outcome
from onsale.sandbox.books import Books
from onsale.sandbox.charge import Charge, Refund, Status, new_id
from onsale.sandbox.problems import Refused
from onsale.sandbox.schemas import ChargeAsked, RefundAsked
from onsale.sandbox.settings import SandboxSettings
from onsale.sandbox.webhooks import Happened, Sender, event

ERRORS_REMEMBERED_MAX = 10_000
Choice = Literal["pay", "decline", "cancel"]
CHOICES: dict[str, Choice] = {"pay": "pay", "decline": "decline", "cancel": "cancel"}


class Till:
    def __init__(self, *, settings: SandboxSettings, books: Books, sender: Sender) -> None:
        self._settings = settings
        self._books = books
        self._sender = sender
        self._errors_shown: OrderedDict[str, int] = OrderedDict()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def open(self) -> None:
        """Take up the successes that were promised before a restart."""
        for charge in self._books.waiting():
            self._promise(charge)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def reset(self) -> None:
        self.close()
        self._sender.drop()
        self._errors_shown.clear()
        self._books.clear()

    def take(self, asked: ChargeAsked, *, key: str, base_url: str) -> tuple[Charge, bool]:
        """The charge of this key, and whether it was there before."""
        fingerprint = asked.fingerprint()
        known = self._books.charge_of_key(key)
        if known is not None:
            _same(known.fingerprint, fingerprint)
            return known, True
        self._fail(f"charge {key}", BEHAVIOURS[asked.method].errors_before_success, status=503)
        charge = self._draft(asked, key=key, fingerprint=fingerprint, base_url=base_url)
        if charge.page_url is None:
            return self._begin(charge), False
        self._books.put(charge)
        return charge, False

    def choose(self, charge_id: str, choice: Choice) -> Charge:
        """What the fan pressed on the hosted page; a page that was already used changes nothing."""
        charge = self._books.charge(charge_id)
        if charge.status != "requires_action":
            return charge
        if choice == "cancel":
            return self.cancel(charge_id)
        if choice == "decline":
            return self._move(charge, "failed", failure_reason="card_declined")
        return self._begin(charge.after())

    def cancel(self, charge_id: str) -> Charge:
        charge = self._books.charge(charge_id)
        if charge.status == "cancelled":
            return charge
        if charge.status == "failed":
            raise Refused(409, "already_failed", "The charge failed before.")
        if charge.status == "succeeded" and charge.captured_minor:
            raise Refused(409, "already_succeeded", "The charge succeeded before; refund it.")
        after_all = charge.behaviour.succeeds_after_cancel and charge.status == "processing"
        succeeds_at_s = time.time() + charge.late_after_s if after_all else None
        return self._promise(self._move(charge, "cancelled", succeeds_at_s=succeeds_at_s))

    def capture(self, charge_id: str) -> Charge:
        charge = self._books.charge(charge_id)
        if charge.status != "succeeded":
            raise Refused(409, "not_succeeded", "Only a charge that succeeded can be captured.")
        if charge.captured_minor:
            return charge
        self._fail(f"capture {charge_id}", charge.behaviour.capture_errors, status=502)
        captured = charge.after(captured_minor=charge.amount_minor)
        self._books.put(captured)
        return captured

    def refund(self, charge_id: str, asked: RefundAsked, *, key: str) -> tuple[Refund, bool]:
        """The refund of this key, and whether it was there before."""
        charge = self._books.charge(charge_id)
        fingerprint = asked.fingerprint(charge_id)
        known = self._books.refund_of_key(key)
        if known is not None:
            _same(known.fingerprint, fingerprint)
            return known, True
        if charge.status != "succeeded" or not charge.captured_minor:
            raise Refused(409, "not_succeeded", "Only captured money can be refunded.")
        if charge.refunded_minor + asked.amount_minor > charge.captured_minor:
            raise Refused(409, "refund_exceeds_charge", "Less than this is left of the charge.")
        self._fail(f"refund {charge_id}", charge.behaviour.refund_errors, status=502)
        refund = Refund(
            id=new_id("re"),
            charge_id=charge_id,
            idempotency_key=key,
            fingerprint=fingerprint,
            amount_minor=asked.amount_minor,
            currency=charge.currency,
            created_at=self._books.now(),
        )
        refunded = charge.after(refunded_minor=charge.refunded_minor + asked.amount_minor)
        self._books.put_refund(refund, refunded)
        self._tell("refunded", refunded)
        return refund, False

    def _draft(self, asked: ChargeAsked, *, key: str, fingerprint: str, base_url: str) -> Charge:
        charge_id, now = new_id("ch"), self._books.now()
        hosted = asked.method is Method.REDIRECT or asked.return_url is not None
        return Charge(
            id=charge_id,
            reference=asked.reference,
            idempotency_key=key,
            fingerprint=fingerprint,
            status="requires_action" if hosted else "processing",
            amount_minor=asked.amount_minor,
            currency=asked.currency,
            method=asked.method,
            capture=asked.capture,
            created_at=now,
            occurred_at=now,
            page_url=f"{base_url}/pay/{charge_id}" if hosted else None,
            return_url=asked.return_url,
            late_after_s=asked.late_after_s(self._settings.late_after_s),
        )

    def _begin(self, charge: Charge) -> Charge:
        """The fan agreed: do what the method does, in one write."""
        behaviour = charge.behaviour
        begun = self._moved(charge, behaviour.outcome, failure_reason=behaviour.failure_reason)
        if behaviour.succeeds_later:
            begun = replace(begun, succeeds_at_s=time.time() + charge.late_after_s)
        twin = self._twin(begun) if behaviour.charges_twice else None
        self._books.put(begun, *([twin] if twin else []))
        if behaviour.tells_backwards:
            earlier = replace(begun, status="processing", captured_minor=0)
            self._tell("processing", earlier, after_s=self._settings.reorder_gap_s)
        for charged in filter(None, (begun, twin)):
            self._tell(behaviour.outcome, charged)
        return self._promise(begun)

    def _twin(self, charge: Charge) -> Charge:
        """The same money taken once more, under an id of its own."""
        return replace(
            charge,
            id=new_id("ch"),
            idempotency_key=f"{charge.idempotency_key}#double",
            created_at=self._books.now(),
            page_url=None,
            first_answer=None,
        )

    def _promise(self, charge: Charge) -> Charge:
        if charge.succeeds_at_s is not None:
            delay_s = max(0.0, charge.succeeds_at_s - time.time())
            loop = asyncio.get_running_loop()
            self._timers[charge.id] = loop.call_later(delay_s, self._keep_promise, charge.id)
        return charge

    def _keep_promise(self, charge_id: str) -> None:
        """The row decides: a cancel in between has called the success off."""
        del self._timers[charge_id]
        charge = self._books.charge(charge_id)
        if charge.succeeds_at_s is not None:
            self._move(charge, "succeeded")

    def _move(self, charge: Charge, status: Outcome | Literal["cancelled"], **changes: Any) -> Charge:
        moved = self._moved(charge.after(), status, **changes)
        self._books.put(moved)
        self._tell(status, moved)
        return moved

    def _moved(self, charge: Charge, status: Status, **changes: Any) -> Charge:
        captured_minor = charge.amount_minor if status == "succeeded" and charge.capture else 0
        changes = {"succeeds_at_s": None, "captured_minor": captured_minor, **changes}
        return replace(charge, status=status, occurred_at=self._books.now(), **changes)

    def _tell(self, happened: Happened, charge: Charge, *, after_s: float = 0.0) -> None:
        told = event(happened, charge.answer(), at=self._books.now())
        self._sender.offer(orjson.dumps(told), after_s=after_s, copies=charge.behaviour.copies_per_event)

    def _fail(self, what: str, errors: int, *, status: int) -> None:
        """Answer an error the first so many times; what was shown is forgotten oldest first."""
        if not errors:
            return
        shown = self._errors_shown.get(what, 0)
        if shown < errors:
            self._errors_shown[what] = shown + 1
            if len(self._errors_shown) > ERRORS_REMEMBERED_MAX:
                self._errors_shown.popitem(last=False)
            raise Refused(status, "provider_error", "Something went wrong on our side; try again.")


def _same(known: str, asked: str) -> None:
    if known != asked:
        raise Refused(409, "idempotency_key_reused", "This key came with another request before.")
