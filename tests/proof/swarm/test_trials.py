"""Trials on real processes: one that survives, and one in which the database forgets a sale, which must be found."""

import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.proof.part import Budget
from tests.proof.swarm import run
from tests.proof.swarm.faults import machine
from tests.proof.swarm.faults.fault import Fault
from tests.proof.swarm.plan import Plan, PlannedFan, PlannedFault
from tests.proof.swarm.site import PostgresTemplate, Site
from tests.proof.swarm.trial import try_plan
from tests.support.engines.engines import fast_directory, run_in_thread
from tests.support.wait import wait_until

FORGETS = "UPDATE orders.\"order\" SET status = 'expired', confirmed_at = NULL WHERE reference = $1"
SOLD = 'SELECT reference FROM orders."order" WHERE confirmed_at IS NOT NULL'


class SaleForgotten(Fault):
    """The database forgets a sale that was acknowledged."""

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return ["postgres"]

    @classmethod
    def what(cls, target: str) -> str:
        return "PostgreSQL forgets a sale"

    async def begin(self, site: Site) -> None:
        async def is_sold() -> bool:
            return bool(await site.query(SOLD))

        await wait_until(is_sold, timeout_s=20, interval_s=0.1)
        await site.query(FORGETS, (await site.query(SOLD))[0][0])


@pytest.fixture(scope="module")
def template() -> Iterator[PostgresTemplate]:
    with tempfile.TemporaryDirectory(prefix="onsale-swarm-", dir=fast_directory()) as folder:
        yield run_in_thread(PostgresTemplate(Path(folder)).make())


async def test_a_forgotten_sale_is_found(template: PostgresTemplate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(machine.FAULTS, "SaleForgotten", SaleForgotten)
    plan = Plan(1, fans=(PlannedFan("buys", 0.0, 3),), faults=(PlannedFault("SaleForgotten", "postgres", 1.0, 0.5, 1),))
    outcome = await try_plan(plan, template, clean_within_s=2)
    assert outcome.bought
    assert any("order" in found for found in outcome.found)
    assert [trial.survived for trial in outcome.trials(plan.faults)] == [False]
    assert outcome.lost


async def test_a_budget_of_20_s_gets_one_small_trial(template: PostgresTemplate) -> None:
    result = await run.trials(Budget(seconds=20, seed=4), template, until_s=time.monotonic() + 20)
    assert result.found == []
    assert result.counts["trials"] == 1
    assert result.counts["faults"] == len(result.trials) > 0
    assert result.counts["acknowledgements"] > 10
    assert all(trial.survived and not trial.lost for trial in result.trials)
