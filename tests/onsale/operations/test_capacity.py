"""The capacity plan: arithmetic that never shrinks when more is asked, and says what breaks first."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onsale.capacity.calculation import SERVICES, plan_sale
from onsale.capacity.coefficients import coefficients
from onsale.capacity.resources import Plan
from onsale.capacity.sale import Sale
from tests.support.running.command_line import Command

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
    """Everything that costs somebody something."""
    return {
        **{service.name: service.processes for service in plan.services},
        "cores": plan.cores, "memory": plan.redis.memory_mib, "disk": plan.database.disk_gib,
        "writes": plan.database.writes_per_s, "bandwidth": plan.network.gbit_per_s, "sockets": plan.network.sockets,
        **{limit.name: limit.needed for limit in plan.limits},
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(SALES, st.sampled_from(GROWING), st.floats(1, 20))
def test_who_asks_for_more_never_needs_less(sale: Sale, what: str, times: float) -> None:
    value = getattr(sale, what) * times
    more = dataclasses.replace(sale, **{what: value if what == "streams_per_fan" else int(value)})
    less, needed = needs(plan_sale(sale, KNOWN)), needs(plan_sale(more, KNOWN))
    for name, much in less.items():
        assert needed[name] >= much * (1 - 1e-9), name


@settings(max_examples=60, deadline=None)
@given(SALES)
def test_the_whole_is_the_sum_of_its_parts(sale: Sale) -> None:
    plan = plan_sale(sale, KNOWN)
    parts = [*plan.services, plan.redis, plan.database]
    assert list(plan.core_users) == parts
    rush, height = ([getattr(one, f"cores_{moment}") for one in parts] for moment in ("rush", "height"))
    assert plan.cores == max(sum(rush), sum(height))
    assert plan.processes == sum(service.processes for service in plan.services)
    assert [service.name for service in plan.services] == list(SERVICES)
    assert sale.admissions + sale.left_out == sale.fans
    assert plan.streams.per_process * plan.services[-1].processes >= plan.streams.open
    assert plan.streams.per_process <= KNOWN["streams_max"]
    assert [one.share for one in plan.limits] == sorted((one.share for one in plan.limits), reverse=True)
    for service in plan.services:
        assert service.processes * sale.busy >= max(service.cores_rush, service.cores_height) * (1 - 1e-9)


def test_nobody_is_called_who_could_not_buy_in_time() -> None:
    sale = Sale(2_000_000, 60_000, minutes=60)
    assert sale.admissions == 37_500
    assert sale.rate_per_s == pytest.approx(37_500 / (55 * 60))
    assert sale.max_active == 3_410
    assert sale.rate_per_s * 55 * 60 * sale.buying * sale.seats_per_order == pytest.approx(60_000)
    assert Sale(100, 60_000).admissions == 100


def test_units_a_longer_window_saves_frames_and_more_streams_cost_them() -> None:
    sale = Sale(1_000_000, 10_000, window_ms=250)
    plan, slower = plan_sale(sale, KNOWN), plan_sale(dataclasses.replace(sale, window_ms=1000), KNOWN)
    assert plan.streams.frames_per_s == 4 * 1_000_000
    assert slower.streams.frames_per_s == 1_000_000
    bits = plan.streams.frames_per_s * (plan.streams.frame_bytes + KNOWN["packet_bytes"]) * 8
    assert plan.network.frames_gbit_per_s == pytest.approx(bits / 1e9)
    assert plan.streams.memory_mib == pytest.approx(1_000_000 * KNOWN["stream_kib"] / 1024)
    assert plan.redis.line_mib == pytest.approx(1_000_000 * KNOWN["place.bytes"] / 2**20)


def test_what_decides_how_many_processes_there_are_is_named() -> None:
    def decided(**sale: float) -> dict[str, tuple[int, str]]:
        plan = plan_sale(Sale(**{"tickets": 100, **sale}), KNOWN)  # type: ignore[arg-type] # numbers of either kind
        return {service.name: (service.processes, service.decided_by) for service in plan.services}

    assert set(decided(fans=1000).values()) == {(2, "two, so that one may fail")}
    assert decided(fans=1_000_000, window_ms=10_000)["notifier"] == (50, "open streams")
    assert decided(fans=1_000_000, window_ms=50)["notifier"][1] == "processor"
    patient = decided(fans=50_000_000, first_minute=0.0001, liveness_s=600, minutes=600)
    assert patient["queue"] == (-(-patient["gateway"][0] // 64), "batches of the gateways")


def test_the_command_prints_what_the_arithmetic_says(onsale: Command) -> None:
    asked = ("plan", "--fans", "2000000", "--tickets", "60000", "--minutes", "60")
    made = plan_sale(Sale(2_000_000, 60_000), KNOWN)
    said = onsale(*asked)
    assert said.returncode == 0, said.stderr
    assert "3,410 inside at once" in said.stdout
    first = made.limits[0]
    assert f"{first.name} {'breaks' if first.share > 1 else 'would break'} first." in said.stdout.replace(
        "The ", "the "
    )
    for service in made.services:
        [line] = [line for line in said.stdout.splitlines() if line.startswith(f"{service.name} ")]
        assert line.split()[1] == f"{service.processes:,}"
    told = json.loads(onsale(*asked, "--json").stdout)
    assert told["services"][0]["processes"] == made.services[0].processes
    assert told["totals"] == {"cores": made.cores, "processes": made.processes}
    assert told["redis"]["memory_mib"] == made.redis.memory_mib
    assert told["counted_with"]["each"]["join.gateway"]["source"][0] == "processes"


def test_a_sale_that_is_over_before_anybody_has_paid_is_refused(onsale: Command) -> None:
    ended = onsale("plan", "--fans", "10", "--tickets", "10", "--minutes", "5")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--minutes must be more than --checkout-minutes" in ended.stderr
    assert onsale("plan", "--fans", "0", "--tickets", "10").returncode == 2
    assert onsale("plan", "--fans", "10", "--tickets", "10", "--busy", "1.5").returncode == 2
