"""The states of the money's model: the order in the database, its runs, the provider and inventory."""

from typing import NamedTuple


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
