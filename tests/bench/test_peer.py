"""The peer: what a ticket costs on either side, and what is shown where the peer cannot be had."""

from bench.journey.commands import Journey
from bench.journey.peer import Sold, figures, sold_of

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
