"""The charge service: creates, captures, cancels and refunds charges as their methods demand.

Every change is one write to the store, and webhooks are sent after it. A scheduled success is stored with its time, so
that it also happens after a restart.

Stores every charge and refund in memory and, as JSON lines, in a file.

A row is in the file before it is answered, so a process that is killed loses nothing it has answered. The last row of
an id counts; a last line cut short by a kill is dropped; superseded lines are removed when the file is next opened.
"""

import asyncio
import time
from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson
from cachetools import FIFOCache

from onsale.atomic_file import atomic_write
from onsale.sandbox.charge import BEHAVIOURS, Charge, Outcome, Refund, RequestRefused, Status, StoreDamaged, new_id
from onsale.sandbox.settings import DEFAULTS, ChargeRequest, DisputeRequest, RefundRequest, SandboxSettings, Tuning
from onsale.sandbox.webhooks import EventKind, WebhookSender, event


class ChargeStore:
    """Lookups are by dictionary or bisection. `charges_max` limits the charges; their amounts limit the refunds."""

    def __init__(self, *, path: Path | None = None, charges_max: int) -> None:
        self._charges_max = charges_max
        self._file: BinaryIO | None = None
        self._last = datetime.min.replace(tzinfo=UTC)
        self._reset()
        if path is not None:
            self._load(path)

    def _reset(self) -> None:
        self._charges: dict[str, Charge] = {}
        self._by_key: dict[str, str] = {}
        self._by_reference: dict[str | None, list[str]] = defaultdict(list)  # under None those of all references
        self._refunds: dict[str, Refund] = {}  # by idempotency key
        self._refunds_of: dict[str, list[Refund]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._charges)

    def now(self) -> str:
        """The time now, at least a microsecond after the last call, so that `created_at` orders charges strictly."""
        self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
        return as_rfc3339(self._last)

    def charge(self, charge_id: str) -> Charge:
        try:
            return self._charges[charge_id]
        except KeyError:
            raise RequestRefused(404, "no_such_charge", "There is no charge of this id.") from None

    def charge_of_key(self, key: str) -> Charge | None:
        return self._charges.get(self._by_key.get(key, ""))

    def refund_of_key(self, key: str) -> Refund | None:
        return self._refunds.get(key)

    def refunds_of(self, charge_id: str) -> list[Refund]:
        return self._refunds_of.get(charge_id, [])

    def scheduled(self) -> list[Charge]:
        """Charges whose success is scheduled."""
        return [charge for charge in self._charges.values() if charge.succeeds_at_s is not None]

    def page(self, *, reference: str | None, since: str | None, limit: int) -> tuple[list[Charge], bool]:
        """Charges oldest first, and whether there are more: the newest, or with `since` the oldest from there on."""
        ids = self._by_reference.get(reference, [])
        start = self._start(ids, since) if since is not None else max(0, len(ids) - limit)
        chosen = ids[start : start + limit]
        has_more = start > 0 if since is None else start + limit < len(ids)
        return [self._charges[charge_id] for charge_id in chosen], has_more

    def _start(self, ids: list[str], since: str) -> int:
        if since.startswith("ch_"):
            moment = self.charge(since).created_at
        else:
            try:
                moment = as_rfc3339(datetime.fromisoformat(since.replace(" ", "+")))
            except (ValueError, OverflowError):
                raise RequestRefused(422, "invalid_request", "since: an RFC 3339 time or the id of a charge.") from None
        start = bisect_left(ids, moment, key=lambda each: self._charges[each].created_at)
        return start + (ids[start : start + 1] == [since])

    def put(self, *charges: Charge, refund: Refund | None = None) -> None:
        """Stores all of them in one write, or none when the store is full."""
        added = sum(charge.id not in self._charges for charge in charges)
        if len(self._charges) + added > self._charges_max:
            raise RequestRefused(503, "books_full", "The sandbox takes no more charges; reset it.")
        rows: list[Charge | Refund] = [*charges, *([refund] if refund else [])]
        if self._file is not None:
            self._file.write(b"".join(map(_line, rows)))
            self._file.flush()
        for row in rows:
            self._remember(row)

    def clear(self) -> None:
        self._reset()
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _remember(self, row: Charge | Refund) -> None:
        if isinstance(row, Refund):
            self._refunds[row.idempotency_key] = row
            self._refunds_of[row.charge_id].append(row)
            return
        if row.id not in self._charges:
            self._by_key[row.idempotency_key] = row.id
            for reference in (None, row.reference):
                self._by_reference[reference].append(row.id)
        self._charges[row.id] = row

    def _load(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        lines = 0
        with path.open("rb") as file:
            for lines, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    self._remember(_row(line, f"{path}, line {lines}"))
        if lines > len(self._charges) + len(self._refunds):
            rows: list[Charge | Refund] = [*self._charges.values(), *self._refunds.values()]
            atomic_write(path, map(_line, rows))
        self._file = path.open("ab")


def as_rfc3339(moment: datetime) -> str:
    """RFC 3339 in UTC, always of the same length, so that texts sort as times do."""
    utc = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _row(line: bytes, where: str) -> Charge | Refund:
    try:
        match orjson.loads(line):
            case {"charge": dict(fields)} if fields["method"] in BEHAVIOURS:
                return Charge(**fields)
            case {"refund": dict(fields)}:
                return Refund(**fields)
        raise ValueError("neither a charge nor a refund")
    except (ValueError, TypeError, KeyError) as problem:
        raise StoreDamaged(f"{where}: {problem}") from problem


def _line(row: Charge | Refund) -> bytes:
    return orjson.dumps({"charge" if isinstance(row, Charge) else "refund": row}, option=orjson.OPT_APPEND_NEWLINE)


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
