"""The change of names on tickets.

The buyer may change them until the event's time, so many of an order at most; an operator also later. A changed name
keeps the ticket and its code. The event of the change has no names: who reads events learns that there are others.
"""

from collections.abc import Sequence
from dataclasses import replace

from services.orders.model.order import Order, OrderLine
from services.orders.model.update import OrderUpdate
from services.orders.problems import NameChangeRefused, UnknownTicket
from services.orders.requests.requests import CHANGEABLE_STATUSES
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log
from services.orders.tickets.show import ShowInfo
from services.orders.tickets.tickets import tickets_of
from shared.audit_log import Actor
from shared.contracts.event_parts.names import NamesChange
from shared.postgres.engine import AsyncConnection
from shared.runtime.clock import from_datetime, rfc3339

CHANGES_PER_NAME_MAX = 3  # by the buyer; an order of four tickets may change twelve names
WANTED = {"none": "no names", "order": "one name an order: send `name`", "ticket": "a name a ticket: send `names`"}
BUYER = Actor(name="fan", role="fan", reason="The buyer changed names on tickets.")


async def change_names(
    store: OrderStore, order: Order, show: ShowInfo, change: NamesChange, *, operator: Actor | None = None
) -> None:
    """Changes names at the request of the buyer or, whatever the time, of an operator. Raises `NameChangeRefused`,
    `UnknownTicket`.
    """

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate | None:
        update = _renamed(order, show, change)
        changed = _changed_tickets(order, update)
        if not update.changed:
            return None  # the same request came twice
        count = max(1, len(changed))
        if operator is None:
            _require_in_time(order, show)
            _require_changes_left(order, show, count)
            update.set_order(name_changes=order.name_changes + count)
        await audit_log.write(
            connection, "change-names", operator or BUYER, subject=f"order:{order.reference}",
            before={"status": order.status}, after={"tickets": changed},
        )  # fmt: skip
        return update.emit("renamed", tickets=changed)

    await store.change(order.reference, decide)


def _renamed(order: Order, show: ShowInfo, change: NamesChange) -> OrderUpdate:
    """The order with its new names. Raises `NameChangeRefused`, `UnknownTicket`."""
    if show.names == "none" or (show.names == "order") != (change.name is not None):
        raise NameChangeRefused(f"The event asks for {WANTED[show.names]}.")
    if change.name is not None:
        if order.status not in CHANGEABLE_STATUSES:
            raise NameChangeRefused("The order has ended.")
        return OrderUpdate(order).set_order(customer_name=change.name)
    valid = {ticket.ticket_id for ticket in tickets_of(order) if ticket.is_valid}
    if unknown := sorted(change.names.keys() - valid):
        raise UnknownTicket(f"This order has no valid ticket {unknown[0]}.")
    lines = tuple(
        replace(line, tickets=tuple(replace(one, name=change.names.get(one.id, one.name)) for one in line.tickets))
        for line in order.lines
    )
    return OrderUpdate(order).set_order(lines=lines)


def _changed_tickets(order: Order, update: OrderUpdate) -> list[str]:
    """The tickets that have another name now; none if that of the order is another."""
    before = {ticket.id: ticket.name for line in order.lines for ticket in line.tickets}
    after: Sequence[OrderLine] = update.now("lines")
    return [ticket.id for line in after for ticket in line.tickets if ticket.name != before[ticket.id]]


def _require_in_time(order: Order, show: ShowInfo) -> None:
    if show.names_end is not None and order.now_ms >= (end_ms := from_datetime(show.names_end)):
        until = rfc3339(end_ms)
        raise NameChangeRefused(f"Names could be changed until {until}.", until=until)


def _require_changes_left(order: Order, show: ShowInfo, count: int) -> None:
    names = sum(line.quantity for line in order.lines) if show.names == "ticket" else 1
    allowed = CHANGES_PER_NAME_MAX * names
    if order.name_changes + count > allowed:
        raise NameChangeRefused(
            f"{order.name_changes} names of this order were changed, and {allowed} may be.",
            changed=order.name_changes, allowed=allowed,
        )  # fmt: skip
