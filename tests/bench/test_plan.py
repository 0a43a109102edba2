"""`onsale plan` beside the night that was measured: what it counts for that night's parameters, service by service.

The peer: what a ticket costs on either side, and what is shown where the peer cannot be had.

The slow provider: a pace is kept if its rate and its memory are those of the fast one, and nothing is refused.

The measurement of a poll's processor time works: every request is answered.
"""

from dataclasses import replace

import pytest
import uvloop

from bench.journey.commands import Journey
from bench.journey.peer import Sold, figures, sold_of
from bench.line.poll_cost import poll_us
from bench.orders.slow_provider import Pace, claims
from bench.scale import plan_and_night
from bench.scale.coefficients import GUIDE
from bench.scale.simulation import measured_night
from onsale.capacity.sale import coefficients

RECORD, KNOWN, FACTOR = measured_night(), coefficients(), 1.5
PROCESSOR_S, OPERATIONS = plan_and_night.processor_s(RECORD, KNOWN), plan_and_night.operations(RECORD, KNOWN)


@pytest.mark.parametrize("part", PROCESSOR_S)
def test_the_plan_of_the_night_gives_the_processor_time_that_was_measured(part: str) -> None:
    planned, measured = PROCESSOR_S[part]
    assert 1 / FACTOR < planned / measured < FACTOR


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_plan_of_the_night_has_the_operations_that_were_counted(operation: str) -> None:
    """A plan takes it that fans hold half again as often as they buy; the night's fans bought what they held first."""
    planned, measured = OPERATIONS[operation]
    most = KNOWN["holds_per_admission"] if operation == "hold" else FACTOR
    assert 1 / FACTOR < planned / measured <= most


def test_no_cost_of_the_plan_is_taken_from_the_night_that_it_is_compared_with() -> None:
    assert "night" not in KNOWN.measurements


def test_the_guide_shows_the_plan_beside_the_latest_night() -> None:
    assert GUIDE.read_text() == plan_and_night.BLOCK.replaced(GUIDE.read_text(), plan_and_night.table(RECORD, KNOWN))


OURS = Sold(1_900, 190.0, services_s=9.5, databases_s=1.9, load_s=2.0)  # 6 ms a ticket


def test_a_ticket_costs_what_services_and_databases_spend_the_provider_included_and_the_load_program_not() -> None:
    crowd = {"bought": 100, "seconds": 4.0}
    spent = {"suite": 1.0, "sandbox": 0.1, "PostgreSQL": 0.4, "Valkey": 0.1, "crowd": 9.0}
    sold = sold_of(Journey(crowd, spent))
    assert (round(sold.ms, 6), sold.per_s, sold.load_s) == (16.0, 25.0, 9.0)


def test_both_sides_are_compared_by_the_median_of_their_rounds() -> None:
    theirs = [Sold(2_000, 100.0, services_s=s, databases_s=10.0, load_s=5.0) for s in (20.0, 22.0, 90.0)]
    found = figures([OURS], theirs, "")
    [claim] = found.claims
    assert (claim.ours, claim.beside) == ("6.0 ms", "TigerFans, without them, 16.0 ms")
    assert claim.ratio == "2.67 ×, met"
    assert found.rows[1] == ("TigerFans", "2,000", "100", "16.0", "11.0", "5.0", "2.5")
    assert figures([OURS], theirs[:1] * 2, "").claims[0].ratio == "2.50 ×, met"


def test_where_the_peer_cannot_be_had_the_row_says_so() -> None:
    found = figures([OURS], [], "could not be cloned where this ran")
    assert found.rows[1][:2] == ("TigerFans", "could not be cloned where this ran")
    assert found.claims[0].beside == "TigerFans: could not be cloned where this ran"
    assert {len(row) for row in found.rows} == {len(found.headings)}


FAST = Pace(0.05, 800, 790, refused=0, post_p95_ms=100, p50_s=0.1, p95_s=0.2, mib=(100, 110, 110, 112))
SLOW = replace(FAST, latency_s=2.5, per_s=780, p95_s=2.7)


@pytest.mark.parametrize(
    ("pace", "verdict"),
    [
        (SLOW, "met"), (replace(SLOW, per_s=700), "missed"), (replace(SLOW, mib=(100, 110, 200, 300)), "missed"),
        (replace(SLOW, refused=1), "missed"), (replace(SLOW, mib=(100,)), "met"),
    ],
    ids=["as the fast one", "slower", "memory grows", "refuses", "one sample"],
)  # fmt: skip
def test_a_slow_provider_is_held_to_the_pace_of_a_fast_one(pace: Pace, verdict: str) -> None:
    [claim] = claims([FAST, pace])
    assert claim.ratio == f"{pace.per_s / FAST.per_s:.2f} ×, {verdict}"
    assert pace.row()[:4] == ("2.5", "800", f"{pace.per_s:,.0f}", f"{pace.refused}")


def test_polls_of_a_crowd_are_answered_and_measured() -> None:
    assert uvloop.run(poll_us(1_000, 2)) > 0
