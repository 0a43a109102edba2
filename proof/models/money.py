"""Model of the money: an order is charged, sold and refunded by workers that take turns under a lease.

One order, one hold, one charge and two workers. A worker may die or pause before every call and every write; its lease
then ends and the other one continues. The provider may lose an answer, succeed late, or succeed after it has cancelled.
A webhook only says that there is something to look up, so any order, repetition or loss of webhooks is the step `a sync
is due`, now or later. Left out: several attempts, authorisation without capture, partial refunds, review.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from proof.models.explorer import Guard, ProtocolModel

WORKERS = (0, 1)
ENDED_UNSOLD = ("cancelled", "expired")
SETS: dict[str, dict[str, Any]] = {  # what the other steps write
    "return_tickets": {"to_return": False}, "abandon_attempt": {"attempt": "cancelled"},
    "cancel": {"status": "cancelled", "told_cancelled": True}, "expire": {"status": "expired", "end_reason": "expired"},
    "release_hold": {"released": True}, "mark_paid_late": {"status": "late_paid"},
    "mark_refunded": {"status": "refunded"},
}  # fmt: skip


class ProviderEntry(NamedTuple):
    """A charge at the provider, what it answered first and to every repetition, and how often it was refunded."""

    status: str
    first: str
    refunds: int = 0


class OrderWorker(NamedTuple):
    """Before what a worker stands; the answer that it has not written yet."""

    at: str = ""
    answer: str = ""
    paid: bool = False  # the charge succeeded, and is written together with the sale
    refund: tuple[int, int] = (0, 0)  # of which charge, and its key: the number of refunds before it
    saw_sync: bool = False  # a sync was due when it read the order
    woken: bool = False  # the order was woken since: a sync that was requested stays so


IDLE = OrderWorker()


class MoneyState(NamedTuple):
    # the order in the database
    status: str = "pending"
    attempt: str = "created"
    charges: int = 0  # known
    sale: bool = False  # the first charge pays for the sale
    requested: tuple[int, ...] = (0, 0)  # refunds of each charge, requested
    refunded: tuple[int, ...] = (0, 0)  # and done
    to_return: bool = False
    cancel_requested: bool = False
    late: bool = False
    end_reason: str = ""
    released: bool = False
    sync: bool = False
    lease: int | None = None
    lease_over: bool = False
    # elsewhere
    provider: tuple[ProviderEntry, ...] = ()
    hold: str = "paying"  # inventory: paying, free, taken (by somebody else), sold, returned
    workers: tuple[OrderWorker, ...] = (IDLE, IDLE)
    surprises: int = 0
    deaths: int = 0
    told_cancelled: bool = False


class MoneyProtocol(ProtocolModel[MoneyState]):
    """The money. `misfortunes` bounds how often provider and inventory do what they should not, and how often workers
    die or oversleep.
    """

    guards: ClassVar = {
        "the lease": Guard("a worker writes only while the order still has its lease, and the status that it read"),
        "the charge's key": Guard("a charge that is sent again has the same idempotency key"),
        "the refund's key": Guard("a refund that is sent again has the same idempotency key"),
        "unknown before the charge": Guard("an attempt is written as unknown before the provider is called"),
        "syncs": Guard("an order is synced with the provider later, even if no webhook comes"),
        "a sale found at release": Guard("a worker that releases a hold and finds it sold to this order returns it"),
        "the lease before the return": Guard(
            "it returns it only while it has the lease", "w0 takes the order; w0 charges: succeeded; w0 writes"
        ),
        "requested refunds count": Guard("a charge whose refund is requested is not refunded again"),
        "inventory first": Guard("an order is confirmed only after inventory has sold its tickets"),
        "late payments are looked at": Guard("a charge that is found after the end of an order is sold or refunded"),
        "a cancelled order stays so": Guard("a late payment of an order that its fan cancelled is refunded"),
    }

    def __init__(self, *, without: str = "", misfortunes: int = 1) -> None:
        super().__init__(without=without)
        self.start = MoneyState(surprises=misfortunes, deaths=misfortunes)

    def moves(self, state: MoneyState) -> Iterator[tuple[str, MoneyState]]:
        for w in WORKERS:
            yield from self._continue(state, w)
        idle = next((w for w in WORKERS if state.workers[w] == IDLE), None)  # they are alike: the first begins
        if idle is not None and (state.lease is None or state.lease_over) and self._decide(state):
            yield f"w{idle} takes the order", self._take(state, idle)
        if state.lease is not None and state.workers[state.lease] == IDLE and not state.lease_over:
            yield "the lease ends", state._replace(lease_over=True)
        if not state.sync and self._has_news(state) and self._has("syncs"):
            yield "a sync is due", _wake(state)._replace(sync=True)
        if state.status == "pending" and not state.late:
            yield "the deadline passes", state._replace(late=True)
        if state.hold == "paying" and state.status in (*ENDED_UNSOLD, "refunded"):
            yield "inventory gives up the hold", state._replace(hold="free")

    def faults(self, state: MoneyState) -> Iterator[tuple[str, MoneyState]]:
        for w in WORKERS:
            if state.workers[w] != IDLE and state.deaths:
                fewer = state._replace(deaths=state.deaths - 1)
                yield f"w{w} dies", self._at(fewer, w, IDLE)
                if state.lease == w and not state.lease_over:
                    yield f"w{w} oversleeps", fewer._replace(lease_over=True)
        if state.status == "pending" and not state.cancel_requested:
            yield "the fan cancels", _wake(state)._replace(cancel_requested=True, end_reason="fan")
        if state.status == "confirmed" and state.requested[0] == 0 and state.sale:
            yield "an operator refunds", _wake(state)._replace(requested=_add(state.requested, 0), to_return=True)
        if state.hold == "paying" and state.surprises:
            yield "inventory loses the hold", state._replace(hold="free", surprises=state.surprises - 1)
        if state.hold == "free":
            yield "somebody else buys", state._replace(hold="taken")
        yield from self._charges_change(state)

    def _charges_change(self, state: MoneyState) -> Iterator[tuple[str, MoneyState]]:
        """What happens at the provider by itself."""
        for n, charge in enumerate(state.provider):
            if charge.status == "processing":
                for status in ("succeeded", "failed"):
                    yield f"charge {n} is {status}", _set(state, n, charge._replace(status=status))
            elif charge.status == "cancelled" and state.surprises:
                after = _set(state, n, charge._replace(status="succeeded"))
                yield f"charge {n} succeeds after all", after._replace(surprises=state.surprises - 1)

    # -- the decision --------------------------------------------------------------------------------------------------

    def _decide(self, state: MoneyState, *, going_on: bool = False) -> str:
        """The next step by the order alone; empty: nothing is due. A worker that goes on after a step leaves the sync
        of a charge under way to the one that takes the order next.
        """
        if any(requested > done for requested, done in zip(state.requested, state.refunded, strict=True)):
            return "send_refund"
        if state.to_return:
            return "return_tickets"
        if state.status == "pending":
            return self._decide_pending(state, sync=state.sync and not going_on)
        if state.status in ENDED_UNSOLD and not state.released:
            return "release_hold"
        if self._unmatched(state):
            if state.status in ("confirmed", "refunded"):
                return "request_refund"
            if state.status != "late_paid":
                return "mark_paid_late" if self._has("late payments are looked at") else ""
            final = state.end_reason == "fan" and self._has("a cancelled order stays so")
            return (
                "request_refund" if final or state.end_reason == "taken" or any(state.refunded) else "reacquire_stock"
            )
        if state.status == "late_paid":
            return "mark_refunded"
        return "sync_provider" if state.sync else ""

    def _decide_pending(self, state: MoneyState, *, sync: bool) -> str:
        if state.charges:
            return "confirm"
        if state.attempt in ("failed", "cancelled"):
            return "cancel" if state.cancel_requested else "expire" if state.late else "sync_provider" * state.sync
        if not (state.cancel_requested or state.late):
            return "charge" if state.attempt in ("created", "unknown") else "sync_provider" * sync
        if state.attempt == "created":
            return "abandon_attempt"
        return "sync_provider" if state.attempt == "unknown" else "cancel_charge"

    def _unmatched(self, state: MoneyState) -> list[int]:
        """Charges that pay for no sale and whose refund was not requested."""
        counted = state.requested if self._has("requested refunds count") else (0, 0)
        is_sale = state.sale and state.status in ("confirmed", "refunded")
        return [n for n in range(state.charges) if not counted[n] and not (is_sale and n == 0)]

    # -- a worker ------------------------------------------------------------------------------------------------------

    def _take(self, state: MoneyState, w: int) -> MoneyState:
        state = state._replace(lease=w, lease_over=False)
        charge = self._decide(state) == "charge" and state.attempt == "created"
        if charge and self._has("unknown before the charge"):
            state = state._replace(attempt="unknown")
        return self._next(state, w, going_on=False)

    def _next(self, state: MoneyState, w: int, *, going_on: bool = True) -> MoneyState:
        """Reads the order under the lease and stands before what is due; without anything the lease is given back."""
        if state.lease != w:
            return self._at(state, w, IDLE)
        step = self._decide(state, going_on=going_on)
        if not step:
            return self._at(state._replace(lease=None, lease_over=False), w, IDLE)
        worker = OrderWorker({"charge": "the provider"}.get(step, step), saw_sync=state.sync)
        if step == "send_refund":
            n = next(n for n in (0, 1) if state.requested[n] > state.refunded[n])
            worker = worker._replace(refund=(n, state.refunded[n]))
        return self._at(state, w, worker)

    def _continue(self, state: MoneyState, w: int) -> Iterator[tuple[str, MoneyState]]:
        worker = state.workers[w]
        match worker.at:
            case "":
                return
            case "the provider":
                yield from self._charge(state, w)
            case "confirm" | "reacquire_stock":
                sold, answer = self._sell(state, again=worker.at == "reacquire_stock")
                after = worker._replace(at=f"after {worker.at}", answer=answer)
                yield f"w{w} has inventory sell: {answer}", self._at(sold, w, after)
            case "send_refund":
                yield f"w{w} refunds", self._refund(state, w)
            case "return_tickets":
                hold = "returned" if state.hold == "sold" else state.hold
                yield (
                    f"w{w} returns the tickets",
                    self._at(state._replace(hold=hold), w, worker._replace(at="after return_tickets")),
                )
            case "cancel_charge":
                if (charge := state.provider[0]).status == "processing":
                    state = _set(state, 0, charge._replace(status="cancelled"))
                yield f"w{w} cancels the charge", self._write(state, w)
            case "release_hold":
                yield f"w{w} releases the hold", self._release(state, w)
            case _ if worker.at.startswith("after"):
                yield f"w{w} writes", self._write(state, w)
            case _:
                yield f"w{w} does {worker.at}", self._write(state, w)

    def _charge(self, state: MoneyState, w: int) -> Iterator[tuple[str, MoneyState]]:
        """The provider answers with the charge that it has of this key, or begins one and may lose its answer."""
        worker = state.workers[w]
        if state.provider and self._has("the charge's key"):
            status = state.provider[0].first
            yield (
                f"w{w} charges again: {status}",
                self._at(state, w, worker._replace(at="after the provider", answer=status)),
            )
            return
        for status in ("succeeded", "processing", "failed"):
            begun = state._replace(provider=(*state.provider, ProviderEntry(status, status))[:2])
            yield f"w{w} charges: {status}", self._at(begun, w, worker._replace(at="after the provider", answer=status))
        if state.surprises:
            begun = state._replace(
                provider=(*state.provider, ProviderEntry("succeeded", "succeeded"))[:2], surprises=state.surprises - 1
            )
            freed = begun._replace(lease=None, lease_over=False) if begun.lease == w else begun
            yield f"w{w} charges: no answer", self._at(freed, w, IDLE)

    def _sell(self, state: MoneyState, *, again: bool) -> tuple[MoneyState, str]:
        may = ("paying", "sold", "free") if again else ("paying", "sold")
        return (state._replace(hold="sold"), "done") if state.hold in may else (state, "refused")

    def _refund(self, state: MoneyState, w: int) -> MoneyState:
        """The provider refunds once for each key."""
        worker = state.workers[w]
        n, key = worker.refund
        charge = state.provider[n]
        if charge.refunds <= key or not self._has("the refund's key"):
            state = _set(state, n, charge._replace(refunds=charge.refunds + 1))
        return self._at(state, w, worker._replace(at="after send_refund"))

    def _release(self, state: MoneyState, w: int) -> MoneyState:
        """A sale that is found was made by a worker that stopped after its charge; without the lease it stays."""
        if state.hold == "paying":
            state = state._replace(hold="free")
        has_lease = state.lease == w or not self._has("the lease before the return")
        if state.hold == "sold" and has_lease and self._has("a sale found at release"):
            state = state._replace(hold="returned")
        return self._write(state, w)

    def _write(self, state: MoneyState, w: int) -> MoneyState:
        """Writes what the step found, if the worker still has the lease, and goes on."""
        worker = state.workers[w]
        if worker.at == "after the provider" and worker.answer == "succeeded" and self._has("inventory first"):
            return self._at(state, w, worker._replace(at="confirm", paid=True))  # written together with the sale
        if state.lease != w and self._has("the lease"):
            return self._at(state, w, IDLE)
        written = self._written(state, worker)._replace(lease_over=False)
        if written.status == "confirmed" != state.status and (worker.paid or not worker.saw_sync):
            return self._at(written._replace(lease=None), w, IDLE)  # the lease is given back with the sale
        return self._next(written, w)

    def _written(self, state: MoneyState, worker: OrderWorker) -> MoneyState:
        """The order once the worker has written its step."""
        step = worker.at.removeprefix("after ")
        found = sum(charge.status == "succeeded" for charge in state.provider)
        paid: dict[str, Any] = {"charges": found, "attempt": "succeeded", "sync": worker.woken}
        if step == "the provider":
            if worker.answer == "succeeded":  # without inventory first
                return state._replace(status="confirmed", sale=True, **paid)
            return state._replace(attempt=worker.answer, sync=worker.woken)
        if step in ("confirm", "reacquire_stock"):
            if worker.answer == "done":
                paid = paid if worker.paid else {}
                return state._replace(status="confirmed", sale=True, end_reason="", **paid)
            if step == "confirm":
                return state._replace(status="expired", end_reason="lost", **(paid if worker.paid else {}))
            return state._replace(end_reason="taken")
        if step in ("sync_provider", "cancel_charge"):
            return self._synced(state)._replace(sync=worker.woken)
        if step == "send_refund":
            n = worker.refund[0]
            status = "refunded" if state.status == "confirmed" and n == 0 else state.status
            return state._replace(refunded=_add(state.refunded, n), status=status)
        if step == "request_refund":
            asked = self._unmatched(state)
            return state._replace(requested=tuple(count + (n in asked) for n, count in enumerate(state.requested)))
        return state._replace(**SETS[step])

    def _synced(self, state: MoneyState) -> MoneyState:
        """Money that moved is a fact and beats every other end of an attempt."""
        found = sum(charge.status == "succeeded" for charge in state.provider)
        status = state.provider[0].status if state.provider else ""
        live = state.attempt in ("created", "unknown", "processing")
        attempt = status if status == "succeeded" or (status and live) else state.attempt
        if not status and state.attempt == "unknown":
            attempt = "cancelled"
        return state._replace(charges=found, attempt=attempt)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def broken(self, state: MoneyState) -> str:
        taken = [charge for charge in state.provider if charge.status == "succeeded"]
        if len(taken) > 1:
            return "the fan was charged twice"
        if any(charge.refunds > 1 for charge in state.provider):
            return "a charge was refunded twice"
        if state.attempt == "created" and state.provider:
            return "an attempt that was sent looks as if it was not"
        if state.status == "confirmed" and not state.to_return and state.hold != "sold":
            return "an order is confirmed without its tickets"
        if state.status == "confirmed" and not (state.charges and taken):
            return "an order is confirmed without its money"
        if state.told_cancelled and state.status == "confirmed":
            return "an order that its fan cancelled was sold"
        return ""

    def unsettled(self, state: MoneyState) -> str:
        kept = sum(charge.status == "succeeded" for charge in state.provider)
        kept -= sum(charge.refunds for charge in state.provider)
        if state.status not in ("confirmed", "refunded", *ENDED_UNSOLD):
            return f"the order is {state.status}"
        if kept != (state.status == "confirmed"):
            return "the money does not fit"
        if state.hold == "paying" or (state.hold == "sold") != (state.status == "confirmed"):
            return f"the hold of an order that is {state.status} is {state.hold}"
        return ""

    def _has_news(self, state: MoneyState) -> bool:
        """Whether the provider knows something that the order does not."""
        return self._synced(state) != state and state.attempt != "created"

    def _at(self, state: MoneyState, w: int, worker: OrderWorker) -> MoneyState:
        return state._replace(workers=tuple(worker if v == w else state.workers[v] for v in WORKERS))


def _wake(state: MoneyState) -> MoneyState:
    return state._replace(workers=tuple(w if w == IDLE else w._replace(woken=True) for w in state.workers))


def _add(counts: tuple[int, ...], n: int) -> tuple[int, ...]:
    return tuple(count + (i == n) for i, count in enumerate(counts))


def _set(state: MoneyState, n: int, charge: ProviderEntry) -> MoneyState:
    return state._replace(provider=tuple(charge if i == n else other for i, other in enumerate(state.provider)))
