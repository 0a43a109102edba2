"""Plans: drawn from a seed alone, they reach every fault, behaviour and action, and every setting is accepted. A plan
that fails is made small.
"""

import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from proof.swarm import edges, run
from proof.swarm.faults.machine import FAULTS, possible
from proof.swarm.faults.processes import Killed
from proof.swarm.plan import Plan, PlannedFan, PlannedFault
from proof.swarm.run import Shrinker
from proof.swarm.trial import Outcome
from proof.swarm.visits import ACTIONS, BEHAVIOURS
from shared.contracts.event_file import RoomPart, SalesPart
from shared.routes import SALE_SERVICES

EVERYTHING = possible(())
PLANS = [Plan.from_seed(seed, EVERYTHING) for seed in range(300)]


def test_a_plan_follows_from_its_seed_and_can_be_read_again() -> None:
    assert Plan.from_seed(7, EVERYTHING) == PLANS[7] != PLANS[8]
    assert [Plan.from_json(plan.json()) for plan in PLANS] == PLANS


def test_300_seeds_reach_every_fault_behaviour_action_and_setting() -> None:
    assert {fault.kind for plan in PLANS for fault in plan.faults} == set(FAULTS)
    assert {fan.behaviour for plan in PLANS for fan in plan.fans} == set(BEHAVIOURS)
    assert {action.action for plan in PLANS for action in plan.actions} == set(ACTIONS)
    assert {name for plan in PLANS for name in plan.settings} == set(edges.SETTINGS)
    assert {quota for plan in PLANS for quota in plan.types.items()} == {
        (type_id, quota) for type_id, quotas in edges.TYPES.items() for quota in quotas
    }
    assert not any(plan.types for plan in PLANS if any(fault.kind == "OtherVersion" for fault in plan.faults))
    killed = {fault.target for plan in PLANS for fault in plan.faults if fault.kind == Killed.__name__}
    assert killed > {*SALE_SERVICES, "valkey", "sandbox"}, "and second processes"


def test_what_this_machine_lacks_is_not_drawn() -> None:
    kinds = possible({"libfaketime"})
    assert set(EVERYTHING) - set(kinds) == {"ClockStep"}
    assert set(EVERYTHING) - set(possible({"history"})) == {"OtherVersion"}
    assert all(fault.kind != "ClockStep" for seed in range(100) for fault in Plan.from_seed(seed, kinds).faults)


def test_faults_that_touch_the_same_thing_do_not_overlap() -> None:
    for plan in PLANS:
        for first, second in itertools.combinations(plan.faults, 2):
            touched = [set(FAULTS[fault.kind].touches(fault.target)) for fault in (first, second)]
            assert not touched[0] & touched[1] or first.at_s + first.for_s < second.at_s


@pytest.mark.parametrize("service", SALE_SERVICES)
def test_services_accept_every_setting(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Callable[[], Any] = import_module(f"services.{service}.settings").Settings
    sets = [{name: str(value)} for name, values in edges.SETTINGS.items() for value in values]
    prefixes = ("ONSALE_", f"{service.upper()}_")
    for given in [each for each in sets if next(iter(each)).startswith(prefixes)]:
        with monkeypatch.context() as patch:
            for name, value in (edges.ALWAYS | given).items():
                patch.setenv(name, value)
            settings()


def test_the_event_file_accepts_every_edge() -> None:
    for part, values in ((RoomPart, edges.ROOM), (SalesPart, edges.SALES)):
        for name, each in values.items():
            for value in each:
                assert getattr(part.model_validate({name: value}), name) == value


async def test_shrinking_finds_the_guilty_fault_and_fan() -> None:
    guilty, fan = PlannedFault("Flushed", "valkey", 3.0, 1.0, 5), PlannedFan("keeps part", 1.0, 5)
    plan = next(plan for plan in PLANS if len(plan.faults) == 8 and len(plan.fans) > 20)
    plan = Plan(
        1, plan.copies, {"ORDERS_WEBHOOK_WORKERS": "1"}, plan.room, plan.sales,
        (*plan.fans[:9], fan, *plan.fans[9:]), plan.actions, (*plan.faults[:4], guilty, *plan.faults[4:]),
    )  # fmt: skip
    tried: list[Plan] = []

    async def fails(candidate: Plan) -> bool:
        tried.append(candidate)
        return guilty in candidate.faults and fan in candidate.fans

    smallest = await Shrinker(fails, tries_max=60).smallest(plan)
    assert smallest == Plan(1, fans=(fan,), faults=(guilty,))
    assert len(tried) <= 60


async def test_shrinking_ends_after_so_many_tries_with_a_plan_that_failed() -> None:
    plan = max(PLANS, key=lambda plan: len(plan.faults) + len(plan.fans))
    failed: list[Plan] = []

    async def fails(candidate: Plan) -> bool:
        if set(plan.faults[:2]) <= set(candidate.faults):
            failed.append(candidate)
            return True
        return False

    shrinker = Shrinker(fails, tries_max=5)
    assert await shrinker.smallest(plan) == failed[-1]
    assert shrinker.tries_left == 0


async def test_a_plan_that_does_not_fail_again_is_not_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Plan] = []

    async def succeeds(plan: Plan, template: object) -> Outcome:
        tried.append(plan)
        return Outcome(plan)

    monkeypatch.setattr(run, "try_plan", succeeds)
    assert await run.shrunk(PLANS[7], None) == (PLANS[7], "; it did not fail again")  # type: ignore[arg-type]
    assert tried == [PLANS[7]] * run.REPEATS
