"""The simulated night: work waits for processes and cores, what binds is found, and a process more of it helps."""

from dataclasses import replace

import pytest

from bench.scale.simulation import (
    GUIDE,
    SERVICES,
    Installation,
    Night,
    Simulation,
    costs_of,
    measured_night,
    predicted,
    prediction,
)
from onsale.capacity.sale import coefficients

NIGHT = Night(fans=20_000, tickets=400, streams=600, max_active=200)
EIGHT_CORES = Installation(4, 8, dict.fromkeys(SERVICES, 1))


@pytest.mark.proof  # it takes two seconds; the next shows the same prediction
def test_the_prediction_for_this_machine_is_within_a_fifth_of_the_night_measured_on_it() -> None:
    record = measured_night()
    assert predicted(record, coefficients()).over_s == pytest.approx(record["seconds"], rel=0.2)


def test_the_guide_predicts_the_latest_night_from_the_latest_costs() -> None:
    """The large night below it takes a minute; it is written together with this."""
    assert f"```\n{prediction(measured_night(), coefficients())}\n" in GUIDE.read_text()


def test_everybody_joins_and_every_ticket_is_sold_once() -> None:
    simulation = Simulation(NIGHT, EIGHT_CORES, costs_of(coefficients()))
    outcome = simulation.run()
    assert (simulation.joined, simulation.sold, simulation.called, simulation.left) == (20_000, 400, 400, 0)
    assert outcome.joined_s > 0
    assert 0 < outcome.sold_out_s < outcome.over_s


@pytest.mark.parametrize("service", ["gateway", "queue"])
def test_a_process_more_of_what_binds_makes_the_crowd_join_sooner_and_of_anything_else_not(service: str) -> None:
    """Four gateways where the queue binds: each has one batch of joins in flight."""
    costs = {"join.gateway": 10.0, "join.queue": 10.0, f"join.{service}": 1_000.0}
    gateways = 1 if service == "gateway" else 4
    installed = replace(EIGHT_CORES, processes={**EIGHT_CORES.processes, "gateway": gateways})
    before = Simulation(NIGHT, installed, costs).run()
    other = "queue" if service == "gateway" else "gateway"
    assert before.binding == service
    assert Simulation(NIGHT, installed.plus(service), costs).run().joined_s < 0.6 * before.joined_s
    assert Simulation(NIGHT, installed.plus(other), costs).run().joined_s > 0.95 * before.joined_s


def test_processes_of_one_machine_share_its_cores() -> None:
    costs = {"join.gateway": 100.0}
    four = replace(EIGHT_CORES, machines=1, processes={**EIGHT_CORES.processes, "gateway": 4})
    on_one_core, on_four = (Simulation(NIGHT, replace(four, cores=cores), costs).run().joined_s for cores in (1, 4))
    assert on_one_core == pytest.approx(4 * on_four, rel=0.05)


def test_the_sale_is_no_faster_than_its_rate_and_its_slots() -> None:
    slow = Simulation(replace(NIGHT, rate_per_s=50), EIGHT_CORES, {}).run()
    assert slow.sold_out_s >= 400 / 50 - 0.2
    few = Simulation(replace(NIGHT, max_active=10), EIGHT_CORES, {"order.orders": 1_000_000.0}).run()
    assert few.sold_out_s == pytest.approx(400, rel=0.05), "a process that takes a second for each order"
