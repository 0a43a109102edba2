"""The capacity plan: a larger sale never needs less, and the plan names what breaks first."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onsale.capacity.calculation import SERVICES, Plan, plan_sale
from onsale.capacity.sale import Sale, coefficients
from tests.support.running.program import Command

KNOWN = coefficients()
SALES = st.builds(
    Sale,
    fans=st.integers(1, 50_000_000),
    tickets=st.integers(1, 1_000_000),
    minutes=st.floats(10, 600),
    first_minute=st.floats(0, 1),
    buying=st.floats(0.05, 1),
    streams_per_fan=st.floats(0, 5),
    window_ms=st.integers(50, 10_000),
)
GROWING = ("fans", "tickets", "streams_per_fan")


def needs(plan: Plan) -> dict[str, float]:
    """Every resource of the plan, and every limit's need."""
    return {
        **{service.name: service.processes for service in plan.services},
        "cores": plan.cores, "memory": plan.redis.memory_mib, "disk": plan.database.disk_gib,
        "writes": plan.database.writes_per_s, "bandwidth": plan.network.gbit_per_s, "sockets": plan.network.sockets,
        **{limit.name: limit.needed for limit in plan.limits},
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(SALES, st.sampled_from(GROWING), st.floats(1, 20))
def test_a_larger_sale_never_needs_less(sale: Sale, attribute: str, factor: float) -> None:
    if attribute == "streams_per_fan":
        sale = dataclasses.replace(sale, reads_line=False)  # a page with a stream reads no line
    value = getattr(sale, attribute) * factor
    grown: dict[str, Any] = {attribute: value if attribute == "streams_per_fan" else int(value)}
    more = dataclasses.replace(sale, **grown)
    less_needs, more_needs = needs(plan_sale(sale, KNOWN)), needs(plan_sale(more, KNOWN))
    for name, need in less_needs.items():
        assert more_needs[name] >= need * (1 - 1e-9), name


@settings(max_examples=60, deadline=None)
@given(SALES)
def test_totals_are_the_sums_of_their_parts(sale: Sale) -> None:
    plan = plan_sale(sale, KNOWN)
    parts = [*plan.services, plan.redis, plan.database]
    rush, peak = ([getattr(part, f"cores_{moment}") for part in parts] for moment in ("rush", "height"))
    assert plan.cores == max(sum(rush), sum(peak))
    assert [service.name for service in plan.services] == list(SERVICES)
    assert sale.admissions + sale.left_out == sale.fans
    assert plan.streams.per_process * plan.services[-1].processes >= plan.streams.open
    assert plan.streams.per_process <= KNOWN["streams_max"]
    assert [part.share for part in plan.limits] == sorted((part.share for part in plan.limits), reverse=True)
    for service in plan.services:
        assert service.processes * sale.busy >= max(service.cores_rush, service.cores_height) * (1 - 1e-9)


def test_only_fans_who_can_still_buy_in_time_are_admitted() -> None:
    sale = Sale(2_000_000, 60_000, minutes=60)
    assert sale.admissions == 37_500
    assert sale.rate_per_s == pytest.approx(37_500 / (55 * 60))
    assert sale.max_active == 3_410
    assert sale.rate_per_s * 55 * 60 * sale.buying * sale.seats_per_order == pytest.approx(60_000)
    assert Sale(100, 60_000).admissions == 100


def test_a_longer_frame_window_means_fewer_frames_and_totals_have_the_right_units() -> None:
    sale = Sale(1_000_000, 10_000, window_ms=250)
    plan, slower = plan_sale(sale, KNOWN), plan_sale(dataclasses.replace(sale, window_ms=1000), KNOWN)
    assert plan.streams.frames_per_s == 4 * 1_000_000
    assert slower.streams.frames_per_s == 1_000_000
    bits = plan.streams.frames_per_s * (plan.streams.frame_bytes + KNOWN["packet_bytes"]) * 8
    assert plan.network.frames_gbit_per_s == pytest.approx(bits / 1e9)
    assert plan.streams.memory_mib == pytest.approx(1_000_000 * KNOWN["stream_kib"] / 1024)
    assert plan.redis.line_mib == pytest.approx(1_000_000 * KNOWN["place.bytes"] / 2**20)


def test_fans_whom_no_ticket_reaches_poll_only_to_show_that_they_are_there() -> None:
    def polls(fans: int, **sale: float) -> float:
        known: dict[str, Any] = {"fans": fans, "tickets": 1_600, "reads_line": False, **sale}
        return plan_sale(Sale(**known), KNOWN).moments[1].per_s["status"]

    usual_s = KNOWN["poll_max_s"] * KNOWN["poll_share"]
    assert polls(2_000) == pytest.approx(2_000 / usual_s), "a thousand called, a thousand more may be"
    for liveness_s in (30, 600):
        behind = polls(1_002_000, liveness_s=liveness_s) - polls(2_000, liveness_s=liveness_s)
        assert behind == pytest.approx(1_000_000 / (liveness_s * KNOWN["poll_share"]))
    first = polls(1_000_000, tickets=800_000, polls_per_s=100, liveness_s=600)
    assert first == pytest.approx((1_000 / usual_s) + (999_000 / (600 * KNOWN["poll_share"]))), "the rest share 100/s"


def test_in_a_long_line_all_but_the_first_read_the_public_line_and_poll_as_a_heartbeat() -> None:
    def per_s(**sale: Any) -> Mapping[str, float]:
        given: dict[str, Any] = {"fans": 100_000, "tickets": 1_600, "liveness_s": 240, "streams_per_fan": 0.5, **sale}
        return plan_sale(Sale(**given), KNOWN).moments[1].per_s

    share, rate_per_s = KNOWN["poll_share"], Sale(100_000, 1_600).rate_per_s
    in_line = per_s(polls_per_s=100)
    read_s = 100_000 / 1_000
    near = 100 + (2 * read_s + 10) * rate_per_s
    heartbeats = (100_000 - near) / (360 * share)
    assert in_line["status"] == pytest.approx(near / (10 * share) + heartbeats)
    assert in_line["read"] == pytest.approx(50_000 / read_s)
    assert in_line["line"] == 1, "of a cache"
    assert per_s(polls_per_s=100, cached=False)["line"] == in_line["read"]
    assert per_s(fans=2_000)["read"] == pytest.approx(1_000 / 4)
    assert per_s()["status"] < per_s(reads_line=False)["status"]
    grown, shorter = per_s(polls_per_s=2_000), per_s(fans=20_000, polls_per_s=2_000)
    assert grown["status"] >= shorter["status"], "it was shorter on its way"


def test_who_reads_the_public_line_hears_there_that_it_is_sold_out_and_sends_no_heartbeat_before_its_time() -> None:
    def polls(*, minutes: float, reads_line: bool) -> float:
        early = Sale(
            500_000,
            10_000,
            minutes=minutes,
            checkout_minutes=0.1,
            first_minute=1.0,
            liveness_s=240,
            reads_line=reads_line,
        )
        return plan_sale(early, KNOWN).over_sale["status"]

    assert polls(minutes=3, reads_line=True) < 300_000, "those near the head alone"
    assert polls(minutes=3, reads_line=False) > 500_000, "each once more in the end"
    grown = polls(minutes=60, reads_line=True) - polls(minutes=40, reads_line=True)
    every_s = KNOWN["heartbeat_windows"] * 240 * KNOWN["poll_share"]
    assert grown == pytest.approx(490_000 * 20 * 60 / every_s, rel=0.2), "one more each time"


def test_a_sale_of_general_admission_reads_no_seats_and_a_line_that_opens_early_waits_longer() -> None:
    sale = Sale(100_000, 10_000)
    plan, standing = plan_sale(sale, KNOWN), plan_sale(dataclasses.replace(sale, seated=False), KNOWN)
    assert (plan.over_sale["seats"] > 0, standing.over_sale["seats"]) == (True, 0)
    early = plan_sale(dataclasses.replace(sale, minutes_before=30), KNOWN)
    assert early.over_sale["frame"] > 1.4 * plan.over_sale["frame"]
    assert early.over_sale["order"] == plan.over_sale["order"]


def test_the_plan_names_the_reason_for_each_number_of_processes() -> None:
    def decisions(**sale: float) -> dict[str, tuple[int, str]]:
        plan = plan_sale(Sale(**{"tickets": 100, **sale}), KNOWN)  # type: ignore[arg-type] # numbers of either kind
        return {service.name: (service.processes, service.decided_by) for service in plan.services}

    assert set(decisions(fans=1000).values()) == {(2, "two, so that one may fail")}
    assert decisions(fans=1_000_000, window_ms=10_000)["notifier"] == (50, "open streams")
    assert decisions(fans=1_000_000, window_ms=50)["notifier"][1] == "processor"
    long_sale = decisions(fans=50_000_000, first_minute=0.0001, streams_per_fan=0, minutes=600, cached=False)
    assert long_sale["queue"] == (-(-long_sale["gateway"][0] // 64), "batches of the gateways")


def test_the_command_prints_the_plan_as_text_and_json(onsale: Command) -> None:
    arguments = ("plan", "--fans", "2000000", "--tickets", "60000", "--minutes", "60")
    plan = plan_sale(Sale(2_000_000, 60_000), KNOWN)
    result = onsale(*arguments)
    assert result.returncode == 0, result.stderr
    assert "3,410 inside at once" in result.stdout
    first = plan.limits[0]
    assert f"{first.name} {'breaks' if first.share > 1 else 'would break'} first." in result.stdout.replace(
        "The ", "the "
    )
    for service in plan.services:
        [line] = [line for line in result.stdout.splitlines() if line.startswith(f"{service.name} ")]
        assert line.split()[1] == f"{service.processes:,}"
    document = json.loads(onsale(*arguments, "--json").stdout)
    assert document["services"][0]["processes"] == plan.services[0].processes
    assert document["totals"] == {
        "cores": plan.cores, "processes": plan.processes, "core_hours": pytest.approx(plan.whole_s / 3600)
    }  # fmt: skip
    assert document["redis"]["memory_mib"] == plan.redis.memory_mib
    assert document["counted_with"]["each"]["join.gateway"]["source"][0] == "processes"


def test_a_sale_shorter_than_a_checkout_is_refused(onsale: Command) -> None:
    result = onsale("plan", "--fans", "10", "--tickets", "10", "--minutes", "5")
    assert (result.returncode, result.stdout) == (2, "")
    assert "--minutes must be more than --checkout-minutes" in result.stderr
    assert onsale("plan", "--fans", "0", "--tickets", "10").returncode == 2
    assert onsale("plan", "--fans", "10", "--tickets", "10", "--busy", "1.5").returncode == 2
