"""The price lists of the examples, each sold out by a crowd that chooses price types: no place and no type is sold more
often than there is of it, every ticket costs what the list says, and what was charged is what the tickets cost.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from features.reports.sale import read_sale
from onsale import event_files
from onsale.admin_client import AdminClient
from onsale.errors import OperatorError
from onsale.simulate.command import Crowd
from onsale.simulate.observations import Observations, what_stays_wrong
from shared.contracts.event_file import EventFile, SeatedSection
from tests.support.running.suite import RunningSuite

EXAMPLES = Path(__file__).parents[3] / "onsale" / "examples"
WAVES_MAX, FANS_MAX, ACCESS_CODES, FEW = 12, 250, 40, 12
RATE_PER_S, CLAIM_S, SESSION_S = 25, 20, 60
LATER = timedelta(seconds=2)  # the general sale begins so long after that of the other lanes
SOLD = """
    SELECT section_id, position, type_id, unit_price_minor, 1 AS quantity
    FROM inventory.reservation_seat JOIN inventory.reservation USING (event_id, reservation_id)
    WHERE event_id = $1 AND status = 'confirmed'
    UNION ALL
    SELECT split_part(section_id, '~', 1), NULL, type_id, unit_price_minor, quantity
    FROM inventory.reservation_ga JOIN inventory.reservation USING (event_id, reservation_id)
    WHERE event_id = $1 AND status = 'confirmed'"""


class Sold(NamedTuple):
    """Tickets of a confirmed sale, as inventory has them."""

    section_id: str
    position: int | None
    type_id: str
    unit_price_minor: int
    quantity: int


# -- the price list, read a second time --------------------------------------------------------------------------------


def listed_minor(event: EventFile, ticket: Sold) -> int:
    """What the file says that this ticket costs."""
    section = next(each for each in event.sections if each.section_id == ticket.section_id)
    place: Any = section
    if isinstance(section, SeatedSection) and ticket.position is not None:
        row = ticket.position // (section.seats_per_row + 1)
        levels = [(section.rows_of(level), level) for level in section.price_levels]
        place = next((level for (first, last), level in levels if first <= row <= last), section)
    kind = next(each for each in event.price_types if each.type_id == type_of(event, ticket))
    ticket_minor = place.prices.get(kind.type_id, kind.price_minor)
    if ticket_minor is None:
        ticket_minor = rounded(Decimal(place.price_minor) * Decimal(kind.percent or 100) / 100)
    fee_minor = place.fee_minor if kind.fee_minor is None else kind.fee_minor
    return int(ticket_minor + (fee_minor if ticket_minor or kind.fee_minor else 0))


def type_of(event: EventFile, ticket: Sold) -> str:
    """The usual type is stored without a name."""
    return ticket.type_id or event.price_types[0].type_id


def rounded(amount: Decimal) -> int:
    return int(amount.quantize(Decimal(1), ROUND_HALF_UP))


def fees_minor(event: EventFile, tickets: Sequence[Sold]) -> int:
    """The fees of orders of these lines; each is per ticket."""
    total = 0
    for fee in event.fees:
        assert fee.per == "ticket"
        for ticket in tickets:
            if fee.types and type_of(event, ticket) not in fee.types:
                continue
            if fee.percent is not None:
                total += rounded(fee.percent * ticket.quantity * ticket.unit_price_minor / 100)
            elif ticket.unit_price_minor:
                total += (fee.amount_minor or 0) * ticket.quantity
    return total


# -- a sale in seconds -------------------------------------------------------------------------------------------------


def smaller(event: EventFile, by: int, *, tour_id: str = "") -> EventFile:
    """The same price list for a hall with fewer rows and places, whose sale begins now."""
    changes: dict[str, Any] = event.model_dump()
    changes["event_id"] = f"{event.event_id}-{uuid.uuid4().hex[:8]}"
    for section in changes["sections"]:
        if section["kind"] == "ga":
            section["capacity"] = fewer(section["capacity"], by)
        elif by > 1 and isinstance(section["rows"], list):
            rows = section["rows"]
            ends = {row for level in section["price_levels"] for row in level["rows"]}
            ends |= {row for allotment in changes["allotments"] for part in allotment["rows"] for row in part["rows"]}
            section["rows"] = [row for row in rows if row in ends or row == rows[-1]]
            section["seats_per_row"] = min(section["seats_per_row"], FEW)
    for kind in changes["price_types"]:
        kind["quota"] = kind["quota"] and kind["quota"] // by
    later = datetime.now(UTC) + LATER
    for allotment in changes["allotments"]:
        allotment["opens_at"] = None if allotment["codes"] else later
        for part in allotment["ga"]:
            part["quantity"] = fewer(part["quantity"], by)
    lanes = changes["room"]["lanes"]
    lanes[0]["opens_at"] = later if len(lanes) > 1 else None
    changes["room"] |= {
        "queue_opens_at": None, "sale_starts_at": None, "rate_per_s": RATE_PER_S, "burst": RATE_PER_S,
        "max_active": FANS_MAX, "claim_window_s": CLAIM_S, "session_s": SESSION_S, "liveness_window_s": 600,
    }  # fmt: skip
    if changes["sales"]["tour"]:
        changes["sales"]["tour"]["tour_id"] = tour_id
    return EventFile.model_validate(changes)


def fewer(places: int, by: int) -> int:
    """A part of them, but not so few that no companion finds one."""
    return max(min(places, FEW), places // by)


def codes_of(event: EventFile) -> list[str]:
    """The words that members are told."""
    return [code for kind in event.price_types for code in kind.codes]


async def sell_out(suite: RunningSuite, event: EventFile, *, customers: Sequence[str] = ()) -> list[Observations]:
    """Crowds come until nothing is left; what they observed."""
    waves: list[Observations] = []
    async with suite.operator() as operator:
        admin = AdminClient(operator, suite.url, suite.admin_key)
        await admin.apply(event)
        access_codes: list[str] = []
        if len(event.room.lanes) > 1:
            body = {"lane": 1, "count": ACCESS_CODES, "reason": "test"}
            access_codes = (await admin.create_access_codes(event.event_id, body)).codes
        await admin.set_room_state(event.event_id, "open", {"reason": "test"})
        suite.opened.append(event.event_id)

        async def left() -> int:
            total = (await admin.read_stock(event.event_id)).total
            return total.capacity - total.sold

        while places := await left():
            assert len(waves) < WAVES_MAX, f"{places} places of {event.event_id} are not sold: {waves[-1]}"
            crowd = Crowd(
                suite.url, event.event_id, fans=min(FANS_MAX, 20 + places // 2), arrive_over_s=2, seed=51 + len(waves),
                streams=0, history=suite.history, codes=codes_of(event), access_codes=access_codes, customers=customers,
            )  # fmt: skip
            await crowd.run(lambda _: None)
            assert crowd.observations.failures == [], event.event_id
            waves, access_codes = [*waves, crowd.observations], []
    return waves


async def sold(suite: RunningSuite, event: EventFile) -> list[Sold]:
    connection = await asyncpg.connect(suite.engines["postgres_url"])
    try:
        return [Sold(**row) for row in await connection.fetch(SOLD, event.event_id)]
    finally:
        await connection.close()


async def require_right(
    suite: RunningSuite, event: EventFile, waves: Sequence[Observations], *, in_full: bool = True
) -> None:
    """What fans saw, what inventory sold, what the list says and what was charged are the same. A crowd for a sale
    `in_full` is so large that every type is bought, and that nothing is left of those with a number in all.
    """
    tickets = await sold(suite, event)
    assert [t for t in tickets if t.unit_price_minor != listed_minor(event, t)] == []
    counts, minor = Counter[str](), Counter[str]()
    for ticket in tickets:
        counts[type_of(event, ticket)] += ticket.quantity
        minor[type_of(event, ticket)] += ticket.quantity * ticket.unit_price_minor
    assert counts == sum((wave.sold_by_type for wave in waves), Counter())
    assert +minor == +sum((wave.minor_by_type for wave in waves), Counter())
    never = {each.type_id for each in event.price_types} - set(counts)
    assert not (in_full and never), "types that nobody bought"
    assert counts.total() == sum(each.capacity for each in event.sections)
    seats = [(ticket.section_id, ticket.position) for ticket in tickets if ticket.position is not None]
    assert len(seats) == len(set(seats))
    quotas = {each.type_id: each.quota for each in event.price_types if each.quota is not None}
    assert {type_id: n for type_id, n in quotas.items() if counts[type_id] > n} == {}
    assert not in_full or {type_id: counts[type_id] for type_id in quotas} == quotas

    total_minor = sum(minor.values()) + fees_minor(event, tickets)
    assert sum(wave.ordered_minor for wave in waves) == total_minor

    assert await what_stays_wrong(lambda: suite.wrong(event.event_id), settle_s=20, quiet_s=0) == []
    async with suite.operator() as operator:
        admin = AdminClient(operator, suite.url, suite.admin_key)
        sale = await read_sale(admin, event.event_id, failure=OperatorError)
        settlement = await admin.read_settlement(**days())
    [money] = sale.orders.money
    assert money.charged_minor - money.refunded_minor == total_minor
    assert {each.section_id: each.sold - each.returned for each in sale.orders.sections} == {
        each.section_id: each.capacity for each in event.sections
    }
    assert Counter({each.type_id: each.sold - each.returned for each in sale.orders.types}) == counts
    assert sum(each.paid_minor for each in sale.orders.types) == total_minor
    of_types = [each for each in settlement.types if each.event_id == event.event_id and each.type_id]
    settled = {each.type_id: each.charged_minor for each in of_types}
    assert settled == {each.type_id: each.paid_minor for each in sale.orders.types if each.type_id in settled}
    assert sum(settled.values()) == total_minor


def days() -> dict[str, Any]:
    """Of a settlement that has all of a sale that was held a moment ago."""
    today = datetime.now(UTC).date()
    return {"since": str(today - timedelta(days=1)), "until": str(today)}


async def require_settled(suite: RunningSuite) -> None:
    """The provider's own list has every charge, at the same amount."""
    async with suite.operator() as operator:
        admin = AdminClient(operator, suite.url, suite.admin_key)

        async def different() -> list[str]:
            try:
                settlement = await admin.read_settlement(**days(), compare=True)
            except OperatorError as unread:
                return [str(unread)]
            return [str(x) for x in settlement.compared if x.missing or x.extra or x.different or x.moved]

        assert await what_stays_wrong(different, settle_s=20, quiet_s=0) == []


# -- the sales ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("club", 10),
        *(pytest.param(*whole, marks=pytest.mark.proof) for whole in (("club", 1), ("theatre", 1))),
    ],
)
@pytest.mark.timeout(180)
async def test_a_price_list_is_sold_out_and_the_books_are_right(suite: RunningSuite, name: str, by: int) -> None:
    event = smaller(event_files.read(EXAMPLES / f"{name}.yaml"), by)
    await require_right(suite, event, await sell_out(suite, event), in_full=by == 1)
    await require_settled(suite)


@pytest.mark.proof
@pytest.mark.timeout(180)
async def test_four_shows_of_a_tour_are_sold_out_and_nobody_has_more_than_the_tour_allows(suite: RunningSuite) -> None:
    tour_id, number = f"tour-{uuid.uuid4().hex[:8]}", count(1)
    events = [smaller(event_files.read(path), 40, tour_id=tour_id) for path in sorted(EXAMPLES.glob("tour-*.yaml"))]
    assert len(events) == 4
    customers = [f"fan-{next(number)}@{tour_id}.example.org" for _ in range(150)]
    sales = await asyncio.gather(*(sell_out(suite, event, customers=customers) for event in events))
    for event, waves in zip(events, sales, strict=True):
        await require_right(suite, event, waves)
    await require_settled(suite)
    bought = sum((wave.tickets_of for waves in sales for wave in waves), Counter[str]())
    limit = events[0].sales.tour
    assert limit is not None
    assert max(bought.values()) == limit.tickets_per_customer, "the limit was reached, and not passed"
