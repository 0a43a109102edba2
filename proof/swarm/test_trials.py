"""Trials on real processes: one that survives, and one in which the database forgets a sale, which must be found."""

import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from proof.part import Budget
from proof.swarm import run
from proof.swarm.faults import machine
from proof.swarm.faults.fault import Fault
from proof.swarm.plan import Plan, PlannedFan, PlannedFault
from proof.swarm.site import PostgresTemplate, Site
from proof.swarm.trial import try_plan
from proof.upgrades.history import NO_HISTORY, commit_before, has_history, unpacked
from tests.support.engines.engines import fast_directory, run_in_thread
from tests.support.wait import wait_until

pytestmark = pytest.mark.journey  # it starts processes of its own

FORGETS = "UPDATE orders.\"order\" SET status = 'expired', confirmed_at = NULL WHERE reference = $1"
SOLD = 'SELECT reference FROM orders."order" WHERE confirmed_at IS NOT NULL'


class SaleForgotten(Fault):
    """The database forgets a sale once its fan knows of it."""

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        return ["postgres"]

    @classmethod
    def what(cls, target: str) -> str:
        return "PostgreSQL forgets a sale"

    async def begin(self, site: Site) -> None:
        def is_acknowledged() -> bool:
            return '"status":"confirmed"' in site.history.path.read_text()

        await wait_until(is_acknowledged, timeout_s=20, interval_s=0.05)
        await site.query(FORGETS, (await site.query(SOLD))[0][0])


@pytest.fixture(scope="module")
def template() -> Iterator[PostgresTemplate]:
    with tempfile.TemporaryDirectory(prefix="onsale-swarm-", dir=fast_directory()) as folder:
        yield run_in_thread(PostgresTemplate(Path(folder)).make())


async def test_a_forgotten_sale_is_found_and_what_tells_why_is_kept(
    template: PostgresTemplate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(machine.FAULTS, "SaleForgotten", SaleForgotten)
    plan = Plan(1, fans=(PlannedFan("buys", 0.0, 3),), faults=(PlannedFault("SaleForgotten", "postgres", 1.0, 0.5, 1),))
    outcome = await try_plan(plan, template, clean_within_s=2, keep=(kept := tmp_path / "kept"))
    assert outcome.bought
    assert any("order" in found for found in outcome.found)
    assert [trial.survived for trial in outcome.trials(plan.faults)] == [False]
    assert outcome.lost
    assert outcome.found[0] in (kept / "notes.txt").read_text()
    assert {"history.jsonl", "orders.log"} <= {path.name for path in kept.rglob("*")}


@pytest.mark.skipif(not has_history(), reason=NO_HISTORY)
async def test_processes_of_another_version_sell_beside_todays(template: PostgresTemplate, tmp_path: Path) -> None:
    """The earlier code leaves a mark when it is imported."""
    package, mark = unpacked(commit_before(), template.home.parent) / "onsale" / "__init__.py", tmp_path / "ran"
    package.write_text(f"{package.read_text()}\nimport pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    other = tuple(PlannedFault("OtherVersion", name, 0.5, 6.0, 1) for name in ("gateway", "orders"))
    outcome = await try_plan(Plan(1, fans=(PlannedFan("buys", 5.0, 3),), faults=other), template)
    assert outcome.found == []
    assert outcome.bought
    assert mark.exists()


async def test_a_budget_of_20_s_gets_one_small_trial(template: PostgresTemplate) -> None:
    result = await run.trials(Budget(seconds=20, seed=4), template, until_s=time.monotonic() + 20)
    assert result.found == []
    assert result.counts["trials"] == 1
    assert result.counts["faults"] == len(result.trials) > 0
    assert result.counts["acknowledgements"] > 10
    assert all(trial.survived and not trial.lost for trial in result.trials)
