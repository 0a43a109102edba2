"""Model of the money: an order is charged, sold and refunded by the process that owns it, until another takes it over.

One order, one hold, one charge, two processes and two runs. A process may die, or be silent while its run stands before
a call or a write or waits for an answer; the other one then takes the order over, and the run that was left goes on
without knowing. The provider may lose an answer, succeed late, or succeed after it has cancelled. A webhook only says
that there is something to look up, as a comparison does, so any order, repetition or loss of webhooks is the step `a
sync is due`, now or later.

Left out: several attempts, authorisation without capture, partial refunds, review.

The states of the money's model: the order in the database, its runs, the provider and inventory.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from proof.models.explorer import Guard, ProtocolModel


class ProviderEntry(NamedTuple):
    """A charge at the provider, what it answered first and to every repetition, and how often it was refunded."""

    status: str
    first: str
    refunds: int = 0


class OrderRun(NamedTuple):
    """A run of a process over the order: before what it stands; the answer that it has not written yet."""

    at: str = ""
    process: int = 0
    is_owner: bool = False  # the order is still its process', in the epoch in which the run began
    answer: str = ""
    paid: bool = False  # the charge succeeded, and is written together with the sale
    refund: tuple[int, int] = (0, 0)  # of which charge, and its key: the number of refunds before it
    saw_sync: bool = False  # a sync was due when it read the order
    woken: bool = False  # something was asked of the order since
    is_first_call: bool = False  # nobody can have sent the charge before


IDLE = OrderRun()


class MoneyState(NamedTuple):
    # the order in the database
    status: str = "pending"
    attempt: str = "unknown"
    charges: int = 0  # known
    sale: bool = False  # the first charge pays for the sale
    requested: tuple[int, ...] = (0, 0)  # refunds of each charge, requested
    refunded: tuple[int, ...] = (0, 0)  # and done
    to_return: bool = False
    cancel_requested: bool = False
    late: bool = False
    end_reason: str = ""
    released: bool = False
    # the open order
    is_open: bool = True
    owner: int = 0
    sync: bool = False
    # elsewhere
    silent: bool = False  # the owner's heartbeat is old: it calls no provider, and another process takes over
    is_fresh: bool = True  # nobody has looked at it since it was written
    provider: tuple[ProviderEntry, ...] = ()
    hold: str = "paying"  # inventory: paying, free, taken (by somebody else), sold, returned
    runs: tuple[OrderRun, ...] = (IDLE, IDLE)
    surprises: int = 0
    deaths: int = 0
    told_cancelled: bool = False
    fault: str = ""  # what must not have happened, though nothing of it may be left


def closed(state: MoneyState) -> MoneyState:
    """The order once nothing is to be done now: it is open only as long as it is due again."""
    return state if state.status == "pending" else state._replace(is_open=False, owner=0, silent=False, sync=False)


def revived(run: OrderRun) -> OrderRun:
    return run if run == IDLE else run._replace(is_owner=True, woken=False)


def add(counts: tuple[int, ...], n: int) -> tuple[int, ...]:
    return tuple(count + (i == n) for i, count in enumerate(counts))


def set_charge(state: MoneyState, n: int, charge: ProviderEntry) -> MoneyState:
    return state._replace(provider=tuple(charge if i == n else other for i, other in enumerate(state.provider)))


RUNS = (0, 1)
PROVIDER_CALLS = ("the provider", "sync_provider", "cancel_charge", "send_refund")
ENDED_UNSOLD = ("cancelled", "expired")
SETS: dict[str, dict[str, Any]] = {  # what the other steps write
    "return_tickets": {"to_return": False}, "abandon_attempt": {"attempt": "cancelled"},
    "cancel": {"status": "cancelled", "told_cancelled": True}, "expire": {"status": "expired", "end_reason": "expired"},
    "release_hold": {"released": True}, "mark_paid_late": {"status": "late_paid"},
    "mark_refunded": {"status": "refunded"},
}  # fmt: skip


class MoneyProtocol(ProtocolModel[MoneyState]):
    """The money. `misfortunes` bounds how often provider and inventory do what they should not, and how often processes
    die or are silent.
    """

    guards: ClassVar = {
        "the claim": Guard("a run writes only while its process owns the order"),
        "the epoch": Guard(
            "and only if no other process owned it since the run began",
            "w0 begins; w0 sends the charge; w0 charges: processing; w0 is silent; "
            "w1 takes the order over; w1 sends the charge; w1 charges again: processing; "
            "w1 writes; the owner hands it over; the deadline passes",
        ),
        "the wakes": Guard("and only if nothing was asked of the order since the run read it"),
        "another life": Guard(
            "an order that was closed and is opened again is not taken for the one that it was",
            "w0 begins; w0 sends the charge; w0 charges: processing; w0 is silent; "
            "w1 takes the order over; w1 sends the charge; w1 charges again: processing; "
            "w1 writes; the deadline passes; charge 0 is succeeded",
        ),
        "a fresh heartbeat": Guard(
            "a process calls the provider only while no other can have taken the order over",
            "w0 begins; w0 is silent; w1 takes the order over",
        ),
        "the charge's key": Guard("a charge that is sent again has the same idempotency key"),
        "the refund's key": Guard("a refund that is sent again has the same idempotency key"),
        "unknown before the charge": Guard("an attempt is unknown in the database before the provider is called"),
        "syncs": Guard("an order is synced with the provider later, even if no webhook comes"),
        "a sale found at release": Guard(
            "a run that releases a hold and finds it sold to this order returns it",
            "w0 begins; w0 sends the charge; w0 is silent; the deadline passes; w1 takes the order over; "
            "w1 does sync_provider",
        ),
        "the claim before the return": Guard(
            "it returns it only while it may write", "w0 begins; w0 sends the charge; w0 charges: succeeded; w0 writes"
        ),
        "requested refunds count": Guard("a charge whose refund is requested is not refunded again"),
        "inventory first": Guard("an order is confirmed only after inventory has sold its tickets"),
        "late payments are looked at": Guard("a charge that is found after the end of an order is sold or refunded"),
        "a cancelled order stays so": Guard("a late payment of an order that its fan cancelled is refunded"),
    }

    def __init__(self, *, without: str = "", misfortunes: int = 1) -> None:
        super().__init__(without=without)
        born = "unknown" if self._has("unknown before the charge") else "created"
        self.start = MoneyState(attempt=born, surprises=misfortunes, deaths=misfortunes)

    def moves(self, state: MoneyState) -> Iterator[tuple[str, MoneyState]]:
        for w in RUNS:
            yield from self._continue(state, w)
        idle = next((w for w in RUNS if state.runs[w] == IDLE), None)  # they are alike: the first begins
        if idle is not None and state.is_open and self._decide(state):
            if state.silent:
                yield f"w{idle} takes the order over", self._take_over(state, idle)
            elif not any(run.is_owner for run in state.runs):
                yield f"w{idle} begins", self._begin(state, idle)
        if not state.sync and self._has_news(state) and self._has("syncs"):
            yield "a sync is due", self._wake(state)._replace(sync=True)
        if state.status == "pending" and not state.late:
            yield "the deadline passes", state._replace(late=True, is_fresh=False)
        if state.hold == "paying" and state.status in (*ENDED_UNSOLD, "refunded"):
            yield "inventory gives up the hold", state._replace(hold="free")

    def faults(self, state: MoneyState) -> Iterator[tuple[str, MoneyState]]:
        for w in RUNS:
            if state.runs[w] != IDLE and state.deaths:
                yield from self._end_process(state._replace(deaths=state.deaths - 1), w)
        if state.is_open and not state.silent and not any(run.is_owner for run in state.runs):
            yield "the owner hands it over", state._replace(silent=True)
        if state.status == "pending" and not state.cancel_requested:
            yield "the fan cancels", self._wake(state)._replace(cancel_requested=True, end_reason="fan")
        if state.status == "confirmed" and state.requested[0] == 0 and state.sale:
            yield "an operator refunds", self._wake(state)._replace(requested=add(state.requested, 0), to_return=True)
        if state.hold == "paying" and state.surprises:
            yield "inventory loses the hold", state._replace(hold="free", surprises=state.surprises - 1)
        if state.hold == "free":
            yield "somebody else buys", state._replace(hold="taken")
        yield from self._charges_change(state)

    def _end_process(self, state: MoneyState, w: int) -> Iterator[tuple[str, MoneyState]]:
        """The process of a run dies, with all its runs, or is silent."""
        process = state.runs[w].process
        ended = [v for v in RUNS if state.runs[v] != IDLE and state.runs[v].process == process]
        owned = any(state.runs[v].is_owner for v in ended)
        if ended[0] == w:
            dead = state._replace(runs=tuple(IDLE if v in ended else run for v, run in enumerate(state.runs)))
            yield (
                " and ".join(f"w{v}" for v in ended) + (" dies" if len(ended) == 1 else " die"),
                dead._replace(silent=state.silent or owned),
            )
        if state.runs[w].is_owner and not state.silent:
            yield f"w{w} is silent", state._replace(silent=True)

    def _charges_change(self, state: MoneyState) -> Iterator[tuple[str, MoneyState]]:
        """What happens at the provider by itself."""
        for n, charge in enumerate(state.provider):
            if charge.status == "processing":
                for status in ("succeeded", "failed"):
                    yield f"charge {n} is {status}", set_charge(state, n, charge._replace(status=status))
            elif charge.status == "cancelled" and state.surprises:
                after = set_charge(state, n, charge._replace(status="succeeded"))
                yield f"charge {n} succeeds after all", after._replace(surprises=state.surprises - 1)

    # -- the decision --------------------------------------------------------------------------------------------------

    def _decide(self, state: MoneyState, *, going_on: bool = False) -> str:
        """The next step by the order alone; empty: nothing is due. A run that goes on after a step leaves the sync
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

    # -- a run ---------------------------------------------------------------------------------------------------------

    def _begin(self, state: MoneyState, w: int) -> MoneyState:
        """The owner's next run."""
        begun = self._at(state, w, OrderRun(process=state.owner, is_owner=True))
        return self._next(begun._replace(is_fresh=False), w, going_on=False, is_first_call=state.is_fresh)

    def _take_over(self, state: MoneyState, w: int) -> MoneyState:
        """The other process owns it in the next epoch, and begins."""
        lost = tuple(run._replace(is_owner=False) for run in state.runs)
        return self._begin(state._replace(runs=lost, owner=1 - state.owner, silent=False, is_fresh=False), w)

    def _owns(self, state: MoneyState, w: int) -> bool:
        """Whether the order is this run's, as its writes and reads find it."""
        if not self._has("the claim"):
            return True
        if not self._has("the epoch"):
            return state.is_open and state.owner == state.runs[w].process
        return state.runs[w].is_owner

    def _may_write(self, state: MoneyState, w: int) -> bool:
        return self._owns(state, w) and not (state.runs[w].woken and self._has("the wakes"))

    def _next(
        self, state: MoneyState, w: int, *, going_on: bool = True, is_first_call: bool = False
    ) -> MoneyState:  # fmt: skip
        """Reads the order and stands before what is due; if nothing is, the run ends, and the order is closed unless it
        is due again.
        """
        if not self._owns(state, w):
            return self._at(state, w, IDLE)
        step = self._decide(state, going_on=going_on)
        if not step:
            return self._at(closed(state), w, IDLE)
        run = state.runs[w]
        run = OrderRun({"charge": "the provider"}.get(step, step), run.process, run.is_owner, saw_sync=state.sync)
        if step == "charge":
            run = run._replace(is_first_call=is_first_call or state.attempt == "created")
            if self._has("unknown before the charge"):
                state = state._replace(attempt="unknown")
        if step == "send_refund":
            n = next(n for n in (0, 1) if state.requested[n] > state.refunded[n])
            run = run._replace(refund=(n, state.refunded[n]))
        return self._at(state, w, run)

    def _continue(self, state: MoneyState, w: int) -> Iterator[tuple[str, MoneyState]]:
        run = state.runs[w]
        if run.at in PROVIDER_CALLS and self._is_refused(state, w):
            yield f"w{w} calls nobody", self._after_refusal(state, w)
        elif run.at == "the provider":
            fault = state.fault if run.is_owner else "a process charged an order that it had lost"
            sent = state._replace(fault=fault)
            yield f"w{w} sends the charge", self._at(sent, w, run._replace(at="under way"))
        elif run.at == "under way":
            yield from self._charge(state, w)
        else:
            yield from self._act(state, w)

    def _act(self, state: MoneyState, w: int) -> Iterator[tuple[str, MoneyState]]:
        """A call to inventory or a later one to the provider, or a write."""
        run = state.runs[w]
        match run.at:
            case "":
                return
            case "confirm" | "reacquire_stock":
                sold, answer = self._sell(state, again=run.at == "reacquire_stock")
                after = run._replace(at=f"after {run.at}", answer=answer)
                yield f"w{w} has inventory sell: {answer}", self._at(sold, w, after)
            case "send_refund":
                yield f"w{w} refunds", self._refund(state, w)
            case "return_tickets":
                hold = "returned" if state.hold == "sold" else state.hold
                yield (
                    f"w{w} returns the tickets",
                    self._at(state._replace(hold=hold), w, run._replace(at="after return_tickets")),
                )
            case "cancel_charge":
                if (charge := state.provider[0]).status == "processing":
                    state = set_charge(state, 0, charge._replace(status="cancelled"))
                yield f"w{w} cancels the charge", self._write(state, w)
            case "release_hold":
                yield f"w{w} releases the hold", self._release(state, w)
            case _ if run.at.startswith("after"):
                yield f"w{w} writes", self._write(state, w)
            case _:
                yield f"w{w} does {run.at}", self._write(state, w)

    def _is_refused(self, state: MoneyState, w: int) -> bool:
        """Without a fresh heartbeat nothing is sent to the provider."""
        run = state.runs[w]
        return (not run.is_owner or state.silent) and self._has("a fresh heartbeat")

    def _after_refusal(self, state: MoneyState, w: int) -> MoneyState:
        """The run ends, to be tried again; a charge that cannot have been sent before is as if it never was."""
        run = state.runs[w]
        if run.at == "the provider":
            if not self._may_write(state, w):
                return self._next(state, w)
            state = state._replace(attempt="created" if run.is_first_call else "unknown")
        return self._at(state, w, IDLE)

    def _charge(self, state: MoneyState, w: int) -> Iterator[tuple[str, MoneyState]]:
        """The provider answers with the charge that it has of this key, or begins one and may lose its answer."""
        run = state.runs[w]
        if state.provider and self._has("the charge's key"):
            status = state.provider[0].first
            yield (
                f"w{w} charges again: {status}",
                self._at(state, w, run._replace(at="after the provider", answer=status)),
            )
            return
        for status in ("succeeded", "processing", "failed"):
            begun = state._replace(provider=(*state.provider, ProviderEntry(status, status))[:2])
            yield f"w{w} charges: {status}", self._at(begun, w, run._replace(at="after the provider", answer=status))
        if state.surprises:
            begun = state._replace(
                provider=(*state.provider, ProviderEntry("succeeded", "succeeded"))[:2], surprises=state.surprises - 1
            )
            yield f"w{w} charges: no answer", self._no_answer(begun, w)

    def _no_answer(self, state: MoneyState, w: int) -> MoneyState:
        """The run writes that the outcome is unknown, and ends; what was asked meanwhile is read again."""
        return self._at(state, w, IDLE) if self._may_write(state, w) else self._next(state, w)

    def _sell(self, state: MoneyState, *, again: bool) -> tuple[MoneyState, str]:
        may = ("paying", "sold", "free") if again else ("paying", "sold")
        return (state._replace(hold="sold"), "done") if state.hold in may else (state, "refused")

    def _refund(self, state: MoneyState, w: int) -> MoneyState:
        """The provider refunds once for each key."""
        run = state.runs[w]
        n, key = run.refund
        charge = state.provider[n]
        if charge.refunds <= key or not self._has("the refund's key"):
            state = set_charge(state, n, charge._replace(refunds=charge.refunds + 1))
        return self._at(state, w, run._replace(at="after send_refund"))

    def _release(self, state: MoneyState, w: int) -> MoneyState:
        """A sale that is found was made by a process that stopped after its charge; without the claim it stays."""
        if state.hold == "paying":
            state = state._replace(hold="free")
        may_return = self._may_write(state, w) or not self._has("the claim before the return")
        if state.hold == "sold" and may_return and self._has("a sale found at release"):
            state = state._replace(hold="returned")
        return self._write(state, w)

    def _write(self, state: MoneyState, w: int) -> MoneyState:
        """Writes what the step found, if the run may, and goes on."""
        run = state.runs[w]
        if run.at == "after the provider" and run.answer == "succeeded" and self._has("inventory first"):
            return self._at(state, w, run._replace(at="confirm", paid=True))  # written together with the sale
        if not self._may_write(state, w):
            return self._next(state, w)
        written = self._written(state, run)
        if run.woken:
            written = written._replace(fault="what was asked of an order was overwritten")
        if state.attempt == "succeeded" != written.attempt:
            written = written._replace(fault="an older answer was written over a newer one")
        if written.status == "confirmed" != state.status and not run.saw_sync:
            return self._at(closed(written), w, IDLE)  # the order is closed with the sale
        return self._next(written, w)

    def _written(self, state: MoneyState, run: OrderRun) -> MoneyState:
        """The order once the run has written its step."""
        step = run.at.removeprefix("after ")
        found = sum(charge.status == "succeeded" for charge in state.provider)
        paid: dict[str, Any] = {"charges": found, "attempt": "succeeded"}
        if step == "the provider":
            if run.answer == "succeeded":  # without inventory first
                return state._replace(status="confirmed", sale=True, **paid)
            return state._replace(attempt=run.answer)
        if step in ("confirm", "reacquire_stock"):
            if run.answer == "done":
                paid = paid if run.paid else {}
                return state._replace(status="confirmed", sale=True, end_reason="", **paid)
            if step == "confirm":
                return state._replace(status="expired", end_reason="lost", **(paid if run.paid else {}))
            return state._replace(end_reason="taken")
        if step in ("sync_provider", "cancel_charge"):
            return self._synced(state)._replace(sync=state.sync and step != "sync_provider")  # which reads every charge
        if step == "send_refund":
            n = run.refund[0]
            status = "refunded" if state.status == "confirmed" and n == 0 else state.status
            return state._replace(refunded=add(state.refunded, n), status=status)
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
        return state.fault

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

    def _wake(self, state: MoneyState) -> MoneyState:
        """Something is asked of the order, which is opened for the first process if it is not open."""
        runs = tuple(run if run == IDLE else run._replace(woken=True) for run in state.runs)
        if not state.is_open:
            if not self._has("another life"):
                runs = tuple(revived(run) if run.process == 0 else run for run in runs)
            state = state._replace(is_open=True, owner=0, silent=False)
        return state._replace(runs=runs, is_fresh=False)

    def _at(self, state: MoneyState, w: int, run: OrderRun) -> MoneyState:
        return state._replace(runs=tuple(run if v == w else state.runs[v] for v in RUNS))
