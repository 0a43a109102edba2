"""Upgrades: data of every earlier commit that changed a schema is opened by today's code, and two versions serve one
sale. In a checkout without history nothing is counted.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from onsale.local.engines import Engines, start_databases
from shared.postgres.migrations import upgrade
from shared.web.routes import SERVICES_WITH_TABLES
from tests.drills.patient_fans import longest_silence_s
from tests.proof.part import Budget, Result, Trial
from tests.proof.upgrades import mixed_sale
from tests.proof.upgrades.earlier_sale import DoesNotStart, open_sale
from tests.proof.upgrades.history import NO_HISTORY, commit_before, earlier_schemas, has_history, whole_commits
from tests.proof.upgrades.opening import OPENED, REFUSED, open_schema
from tests.support.engines.engines import MIGRATED, fast_directory, in_database, run_in_thread, sql

SALES_FROM_S, MIXED_FROM_S, MIXED_S = 45, 120, 60
COUNTED = ("earlier schemas", "opened", "refused clearly", "earlier sales", "mixed sales")


class Proof:
    """One run: what is still to be tried, in an order of the seed, and what was found."""

    def __init__(self, budget: Budget, engines: Engines, folder: Path) -> None:
        self.result = Result(counts=dict.fromkeys(COUNTED, 0))
        self._budget, self._engines, self._folder = budget, engines, folder
        self._end_s = time.monotonic() + budget.seconds
        chance = random.Random(budget.seed)
        self._schemas = chance.sample(earlier_schemas(), len(earlier_schemas()))
        self._commits = chance.sample(whole_commits(), len(whole_commits()))

    def run(self) -> Result:
        """Schemas for a third of the time, or for all of it if it is short; then whole sales in turn."""
        long = self._budget.seconds >= SALES_FROM_S
        self._until(time.monotonic() + self._budget.seconds / (3 if long else 1), self._one_schema)
        if long:
            self._one_sale()
        if self._budget.seconds >= MIXED_FROM_S:
            self._mixed_sale()
        if long:
            self._until(self._end_s, self._one_sale)
            self._until(self._end_s, self._one_schema)
        return self.result

    def _until(self, end_s: float, step: Callable[[], bool]) -> None:
        while time.monotonic() < end_s and step():
            pass

    def _one_schema(self) -> bool:
        """Tries the next schema; whether there was one."""
        if not self._schemas:
            return False
        schema = self._schemas.pop()
        database = f"schemas_{len(self._schemas)}"
        run_in_thread(sql(self._engines, f"create database {database}"))
        outcome = asyncio.run(open_schema(schema, in_database(self._engines, database), self._folder))
        run_in_thread(sql(self._engines, f"drop database {database} with (force)"))
        self._count("earlier schemas")
        print(f"upgrades: {schema.service} of {schema.commit[:8]}: {outcome}", flush=True)
        if outcome == OPENED:
            self._count("opened")
        elif outcome.startswith(REFUSED):
            self._count("refused clearly")
        else:
            self._found(f"The tables of {schema.service} of commit {schema.commit[:8]}: {outcome}")
        return True

    def _one_sale(self) -> bool:
        if not self._commits:
            return False
        commit = self._commits.pop()
        try:
            wrong = open_sale(commit, self._folder, self._budget.seed)
        except DoesNotStart as cause:
            print(f"upgrades: the suite of {commit[:8]} does not run today, so it sold nothing: {cause}", flush=True)
            return True
        self._count("earlier sales")
        print(f"upgrades: a sale of {commit[:8]}: {'; '.join(wrong) or 'opened, and sold on'}", flush=True)
        for sentence in wrong:
            self._found(f"A sale of commit {commit[:8]}: {sentence}")
        return True

    def _mixed_sale(self) -> None:
        commit = commit_before()
        sale = mixed_sale.sell(
            self._engines, MIGRATED, self._folder, commit, seconds=MIXED_S, seed=self._budget.seed
        )  # fmt: skip
        try:
            wrong = asyncio.run(sale)
        except AssertionError as failed:
            wrong = [str(failed)[-400:]]
        self._count("mixed sales")
        fault = "processes are restarted as another version"
        self.result.trials.append(Trial(fault, not wrong, round(longest_silence_s(), 1), len(wrong)))
        print(f"upgrades: a sale by {commit[:8]} and today's code: {'; '.join(wrong) or 'nothing lost'}", flush=True)
        for sentence in wrong:
            self._found(f"A sale by {commit[:8]} and today's code: {sentence}")

    def _count(self, name: str) -> None:
        self.result.counts[name] += 1

    def _found(self, sentence: str) -> None:
        minutes = self._budget.seconds / 60
        again = f"python -m tests.proof --parts upgrades --minutes {minutes:.0f} --seed {self._budget.seed}"
        self.result.found.append(f"{sentence}. Again: {again}")


async def _migrated(engines: Engines) -> None:
    await sql(engines, f"create database {MIGRATED}")
    for service in SERVICES_WITH_TABLES:
        await upgrade(in_database(engines, MIGRATED), service)


def run(budget: Budget) -> Result:
    if not has_history():
        print(f"upgrades: {NO_HISTORY}", flush=True)
        return Result(counts=dict.fromkeys(COUNTED, 0))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
    with tempfile.TemporaryDirectory(prefix="onsale-upgrades-", dir=fast_directory()) as folder:
        running = run_in_thread(start_databases(Path(folder) / "engines", fsync=False, environ=environ))
        try:
            run_in_thread(_migrated(running.addresses))
            return Proof(budget, running.addresses, Path(folder)).run()
        finally:
            run_in_thread(running.stop())
