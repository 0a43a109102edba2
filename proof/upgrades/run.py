"""Upgrades: data of every released version is opened by today's code, and two versions serve one sale. In a checkout
without history nothing is counted.
"""

import asyncio
import itertools
import os
import tempfile
import time
from pathlib import Path

from onsale.local.engines import Engines, start_databases
from proof.drills.sale import longest_silence_s
from proof.part import Budget, Result, Trial
from proof.upgrades import mixed_sale
from proof.upgrades.history import NO_HISTORY, commit_before, has_history, not_installed, releases
from proof.upgrades.released_sale import DoesNotStart, open_sale
from proof.upgrades.rows import open_schema
from shared.postgres.migrations import upgrade
from shared.routes import SERVICES_WITH_TABLES
from tests.support.engines.engines import MIGRATED, fast_directory, in_database, run_in_thread, sql

SALES_FROM_S, MIXED_FROM_S, MIXED_S = 45, 120, 60
COUNTED = ("schemas of releases", "sales of releases", "mixed sales")


class Proof:
    """One run: what was tried and found."""

    def __init__(self, budget: Budget, engines: Engines, folder: Path) -> None:
        self.result = Result(counts=dict.fromkeys(COUNTED, 0))
        self._budget, self._engines, self._folder = budget, engines, folder
        self._end_s = time.monotonic() + budget.seconds
        self._seed = budget.seed

    def run(self) -> Result:
        """The tables of every release, then a sale of each and one of two versions, as often as the time allows."""
        for version, service in itertools.product(releases(), SERVICES_WITH_TABLES):
            self._one_schema(version, service)
        if self._budget.seconds >= MIXED_FROM_S:
            self._mixed_sale()
        while self._budget.seconds >= SALES_FROM_S:
            for version in releases():
                self._one_sale(version)
            if time.monotonic() >= self._end_s or not releases():
                break
        return self.result

    def _one_schema(self, version: str, service: str) -> None:
        database = f"{service}_of_release"
        run_in_thread(sql(self._engines, f"create database {database}"))
        url = in_database(self._engines, database)
        wrong = asyncio.run(open_schema(releases()[version], service, url, self._folder))
        run_in_thread(sql(self._engines, f"drop database {database} with (force)"))
        self._count("schemas of releases")
        print(f"upgrades: {service} of {version}: {'; '.join(wrong) or 'opened'}", flush=True)
        for sentence in wrong:
            self._found(f"The tables of {service} of {version}: {sentence}")

    def _one_sale(self, version: str) -> None:
        self._seed += 1
        try:
            wrong = open_sale(releases()[version], self._folder / str(self._seed), self._seed)
        except DoesNotStart as cause:
            wrong = [f"the suite of that version does not run: {cause}"]
        self._count("sales of releases")
        print(f"upgrades: a sale of {version}: {'; '.join(wrong) or 'opened, and sold on'}", flush=True)
        for sentence in wrong:
            self._found(f"A sale of {version}: {sentence}")

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
        again = f"python -m proof --only upgrades --minutes {minutes:.0f} --seed {self._budget.seed}"
        self.result.found.append(f"{sentence}. Again: {again}")


async def _migrated(engines: Engines) -> None:
    await sql(engines, f"create database {MIGRATED}")
    for service in SERVICES_WITH_TABLES:
        await upgrade(in_database(engines, MIGRATED), service)


def run(budget: Budget) -> Result:
    if not has_history():
        print(f"upgrades: {NO_HISTORY}", flush=True)
        return Result(counts=dict.fromkeys(COUNTED, 0))
    if missing := {version: names for version, commit in releases().items() if (names := not_installed(commit))}:
        needs = "; ".join(f"version {version} needs {', '.join(names)}" for version, names in missing.items())
        raise SystemExit(f"upgrades: {needs}, which this environment does not have. Install it, and run this again.")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
    with tempfile.TemporaryDirectory(prefix="onsale-upgrades-", dir=fast_directory()) as folder:
        running = run_in_thread(start_databases(Path(folder) / "engines", fsync=False, environ=environ))
        try:
            run_in_thread(_migrated(running.addresses))
            return Proof(budget, running.addresses, Path(folder)).run()
        finally:
            run_in_thread(running.stop())
