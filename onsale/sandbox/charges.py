"""The charge service: creates, captures, cancels and refunds charges as their methods demand.

Every change is one write to the store, and webhooks are sent after it. A scheduled success is stored with its time, so
that it also happens after a restart.
"""

import asyncio
import time
from dataclasses import replace
from typing import Any, Literal

import orjson
from cachetools import FIFOCache

from onsale.sandbox.behaviours import BEHAVIOURS, Outcome
from onsale.sandbox.charge import Charge, Refund, Status, new_id
from onsale.sandbox.charge_store import ChargeStore
from onsale.sandbox.problems import RequestRefused
from onsale.sandbox.schemas import ChargeRequest, DisputeRequest, RefundRequest
from onsale.sandbox.settings import DEFAULTS, SandboxSettings, Tuning
from onsale.sandbox.webhooks import EventKind, WebhookSender, event

ERROR_COUNTS_MAX = 10_000


class ChargeService:
    def __init__(
        self, settings: SandboxSettings, store: ChargeStore, sender: WebhookSender, tuning: Tuning = DEFAULTS
    ) -> None:
        self.settings, self.store, self.sender, self._tuning = settings, store, sender, tuning
        self._errors_raised: FIFOCache[str, int] = FIFOCache(ERROR_COUNTS_MAX)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def open(self) -> None:
        """Schedules the successes that were stored before a restart."""
        for charge in self.store.scheduled():
            self._schedule(charge)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def reset(self) -> None:
        self.close()
        self.sender.discard_waiting()
        self._errors_raised.clear()
        self.store.clear()

    def create(self, request: ChargeRequest, *, key: str, base_url: str) -> tuple[Charge, bool]:
        """The charge of this idempotency key, and whether it existed before."""
        fingerprint = request.fingerprint()
        known = self.store.charge_of_key(key)
        if known is not None:
            _require_same_request(known.fingerprint, fingerprint)
            return known, True
        self._raise_planned_error(f"charge {key}", BEHAVIOURS[request.method].errors_before_success, status=503)
        charge = self._draft(request, key=key, fingerprint=fingerprint, base_url=base_url)
        if charge.page_url is None:
            return self._begin(charge), False
        self.store.put(charge)
        return charge, False

    def choose(self, charge_id: str, choice: str) -> Charge:
        """Applies the fan's choice on the hosted page; a page that was already used changes nothing."""
        if choice not in ("pay", "decline", "cancel"):
            raise RequestRefused(422, "invalid_request", "choice: pay, decline or cancel.")
        charge = self.store.charge(charge_id)
        if charge.status != "requires_action":
            return charge
        if choice == "cancel":
            return self.cancel(charge_id)
        if choice == "decline":
            return self._move(charge, "failed", failure_reason="card_declined")
        return self._begin(charge.after())

    def cancel(self, charge_id: str) -> Charge:
        charge = self.store.charge(charge_id)
        if charge.status == "cancelled":
            return charge
        if charge.status == "failed":
            raise RequestRefused(409, "already_failed", "The charge failed before.")
        if charge.status == "succeeded" and charge.captured_minor:
            raise RequestRefused(409, "already_succeeded", "The charge succeeded before; refund it.")
        after_all = charge.behaviour.succeeds_after_cancel and charge.status == "processing"
        succeeds_at_s = time.time() + charge.late_after_s if after_all else None
        return self._schedule(self._move(charge, "cancelled", succeeds_at_s=succeeds_at_s))

    def capture(self, charge_id: str) -> Charge:
        charge = self.store.charge(charge_id)
        if charge.status != "succeeded":
            raise RequestRefused(409, "not_succeeded", "Only a charge that succeeded can be captured.")
        if charge.captured_minor:
            return charge
        self._raise_planned_error(f"capture {charge_id}", charge.behaviour.capture_errors, status=502)
        captured = charge.after(captured_minor=charge.amount_minor)
        self.store.put(captured)
        return captured

    def refund(self, charge_id: str, request: RefundRequest, *, key: str) -> tuple[Refund, bool]:
        """The refund of this idempotency key, and whether it existed before."""
        charge = self.store.charge(charge_id)
        fingerprint = request.fingerprint(charge_id)
        known = self.store.refund_of_key(key)
        if known is not None:
            _require_same_request(known.fingerprint, fingerprint)
            return known, True
        if charge.status != "succeeded" or not charge.captured_minor:
            raise RequestRefused(409, "not_succeeded", "Only captured money can be refunded.")
        withdrawn_minor = charge.dispute["withdrawn_minor"] if charge.dispute else 0
        if charge.refunded_minor + withdrawn_minor + request.amount_minor > charge.captured_minor:
            raise RequestRefused(409, "refund_exceeds_charge", "Less than this is left of the charge.")
        self._raise_planned_error(f"refund {charge_id}", charge.behaviour.refund_errors, status=502)
        refund = Refund(
            id=new_id("re"),
            charge_id=charge_id,
            idempotency_key=key,
            fingerprint=fingerprint,
            amount_minor=request.amount_minor,
            currency=charge.currency,
            created_at=self.store.now(),
        )
        refunded = charge.after(refunded_minor=charge.refunded_minor + request.amount_minor)
        self.store.put(refunded, refund=refund)
        self._send_webhook("refunded", refunded)
        return refund, False

    def dispute(self, charge_id: str, request: DisputeRequest) -> Charge:
        """Opens a dispute, for which the money is withdrawn, or ends it: `won` gives the money back."""
        charge = self.store.charge(charge_id)
        is_open = charge.dispute is not None and charge.dispute["status"] == "open"
        if request.status == "open":
            return self._open_dispute(charge, request, is_open=is_open)
        if charge.dispute is None or not is_open:
            raise RequestRefused(409, "no_open_dispute", "This charge has no open dispute.")
        withdrawn_minor = 0 if request.status == "won" else charge.dispute["amount_minor"]
        ended = charge.dispute | {"status": request.status, "withdrawn_minor": withdrawn_minor}
        return self._with_dispute(charge, ended, "dispute_closed")

    def _open_dispute(self, charge: Charge, request: DisputeRequest, *, is_open: bool) -> Charge:
        amount_minor = request.amount_minor or charge.captured_minor
        if is_open:
            raise RequestRefused(409, "already_disputed", "This charge has an open dispute.")
        if not 0 < amount_minor <= charge.captured_minor:
            raise RequestRefused(409, "dispute_exceeds_charge", "Less than this was captured.")
        opened = {"id": new_id("dp"), "status": "open", "amount_minor": amount_minor}
        withdrawn_minor = 0 if request.inquiry else amount_minor
        return self._with_dispute(charge, opened | {"withdrawn_minor": withdrawn_minor}, "disputed")

    def _with_dispute(self, charge: Charge, dispute: dict[str, Any], kind: EventKind) -> Charge:
        disputed = charge.after(dispute=dispute)
        self.store.put(disputed)
        self._send_webhook(kind, disputed)
        return disputed

    def _draft(self, request: ChargeRequest, *, key: str, fingerprint: str, base_url: str) -> Charge:
        charge_id, now = new_id("ch"), self.store.now()
        return Charge(
            **request.model_dump(exclude={"token", "metadata"}),
            id=charge_id,
            idempotency_key=key,
            fingerprint=fingerprint,
            status="requires_action" if request.needs_page else "processing",
            created_at=now,
            occurred_at=now,
            page_url=f"{base_url}/pay/{charge_id}" if request.needs_page else None,
            late_after_s=request.late_after_s(self.settings.late_after_s),
        )

    def _begin(self, charge: Charge) -> Charge:
        """Begins the payment as the method demands, in one write."""
        behaviour = charge.behaviour
        begun = self._with_status(charge, behaviour.outcome, failure_reason=behaviour.failure_reason)
        if behaviour.succeeds_later:
            begun = replace(begun, succeeds_at_s=time.time() + charge.late_after_s)
        double = self._double(begun) if behaviour.charges_twice else None
        self.store.put(begun, *([double] if double else []))
        if behaviour.webhooks_reordered:
            earlier = replace(begun, status="processing", captured_minor=0)
            self._send_webhook("processing", earlier, after_s=self._tuning.reorder_gap_s)
        for charged in filter(None, (begun, double)):
            self._send_webhook(behaviour.outcome, charged)
        return self._schedule(begun)

    def _double(self, charge: Charge) -> Charge:
        """A second charge of the same money, with an id of its own."""
        return replace(
            charge,
            id=new_id("ch"),
            idempotency_key=f"{charge.idempotency_key}#double",
            created_at=self.store.now(),
            page_url=None,
            first_answer=None,
        )

    def _schedule(self, charge: Charge) -> Charge:
        if charge.succeeds_at_s is not None:
            delay_s = max(0.0, charge.succeeds_at_s - time.time())
            loop = asyncio.get_running_loop()
            self._timers[charge.id] = loop.call_later(delay_s, self._succeed_later, charge.id)
        return charge

    def _succeed_later(self, charge_id: str) -> None:
        """Lets the charge succeed, unless a cancel has removed its scheduled time."""
        del self._timers[charge_id]
        charge = self.store.charge(charge_id)
        if charge.succeeds_at_s is not None:
            self._move(charge, "succeeded")

    def _move(self, charge: Charge, status: Outcome | Literal["cancelled"], **changes: Any) -> Charge:
        moved = self._with_status(charge.after(), status, **changes)
        self.store.put(moved)
        self._send_webhook(status, moved)
        return moved

    def _with_status(self, charge: Charge, status: Status, **changes: Any) -> Charge:
        captured_minor = charge.amount_minor if status == "succeeded" and charge.capture else 0
        changes = {"succeeds_at_s": None, "captured_minor": captured_minor, **changes}
        return replace(charge, status=status, occurred_at=self.store.now(), **changes)

    def _send_webhook(self, kind: EventKind, charge: Charge, *, after_s: float = 0.0) -> None:
        webhook = event(kind, charge.answer(), at=self.store.now())
        self.sender.send(orjson.dumps(webhook), after_s=after_s, copies=charge.behaviour.copies_per_event)

    def _raise_planned_error(self, operation: str, errors: int, *, status: int) -> None:
        """Raises a provider error the first `errors` times for this operation; the oldest counts are dropped first."""
        if not errors:
            return
        raised = self._errors_raised.get(operation, 0)
        if raised < errors:
            self._errors_raised[operation] = raised + 1
            raise RequestRefused(status, "provider_error", "Something went wrong on our side; try again.")


def _require_same_request(known: str, fingerprint: str) -> None:
    if known != fingerprint:
        raise RequestRefused(409, "idempotency_key_reused", "This key came with another request before.")
