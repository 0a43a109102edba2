"""P12: TigerFans, the nearest open peer, beside ours: each with its own load program, in turn, on one machine.

Nothing of it is kept here: it is cloned from its public address when this runs, installed as its requirements say, and
started as its Makefile starts it. Where it cannot be had, the row says so.
"""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness.measurement import (
    CheckFailed,
    Claim,
    Effort,
    Figures,
    Finding,
    Testbed,
    Trial,
    cpu_s,
    environment_without_ours,
    until_ready,
    verdict,
)
from bench.journey.commands import SUITE, Journey, Visitors, demo_suite
from bench.journey.journey import ARRIVE_OVER_S, EVENT_ID, FANS, QUICK_FANS, QUICK_S
from onsale.local.ports import HOST, free_port
from onsale.local.process import Child

ADDRESS, COPY = "https://github.com/renerocksai/tigerfans", "BENCH_TIGERFANS"
CONCURRENCY, AT_LEAST, AIM = 50, 2.5, 5
PAID, RATE = re.compile(r"PAID: (\d+)"), re.compile(r"Throughput: ([\d.]+)")
HEADINGS = ("", "tickets", "tickets a second", "processor ms a ticket", "of it services", "databases", "load program")
MS_PER_S = 1000
STEP_S = 600.0


class NotToBeHad(Exception):
    """The peer cannot be fetched or installed here; the message says why."""


@dataclass(frozen=True)
class Sold:
    """One round of one side: tickets, their rate, and seconds of processor of services, databases and load program."""

    tickets: int
    per_s: float
    services_s: float
    databases_s: float
    load_s: float

    @property
    def ms(self) -> float:
        """Processor time of a ticket, the load program's apart."""
        return (self.services_s + self.databases_s) / self.tickets * MS_PER_S


def peer() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P12",
        title="the nearest open peer, each with its own load program",
        settings=[
            f"TigerFans ({ADDRESS}): FastAPI, PostgreSQL for orders and tickets, Redis for payment sessions, one "
            "uvicorn worker, as its Makefile has it; one ticket an order, a payment that its own process plays; no "
            f"line, no live stock. Its load client, {CONCURRENCY} at a time. It is cloned and installed when this runs "
            f"(`{COPY}` names a copy of the repository, where its address cannot be reached).",
            f"Ours: README's two commands, {FANS:,} fans: the line, live stock, holds, orders with a payment provider "
            "that is a process of its own, webhooks, tickets. The provider counts as one of our services.",
            "Both on the same machine in turn, PostgreSQL and Valkey of the same versions, `fsync` and "
            "`synchronous_commit` on. Processor time by the kernel, of all processes but the load program, by tickets "
            "paid.",
        ],
        find=find,
    )  # fmt: skip


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Measures both in turn, or ours alone where the peer cannot be had."""
    fans, arrive_over_s = (QUICK_FANS, QUICK_S) if effort.quick else (FANS, ARRIVE_OVER_S)
    mine, theirs = list[Sold](), list[Sold]()
    try:
        peer_dir, missing = await _fetch(testbed.data_dir / "peer"), ""
    except NotToBeHad as why:
        peer_dir, missing = Path(), str(why)
    for number in range(1, effort.rounds + 1):
        async with demo_suite(testbed.data_dir / f"ours-{number}") as suite:
            visitors = Visitors.simulated(EVENT_ID, fans=fans, arrive_over_s=arrive_over_s)
            mine.append(sold_of(await suite.visit(visitors)))
            await suite.check_books(EVENT_ID)
        if not missing:
            async with testbed.trial() as trial:
                theirs.append(await _theirs(trial, peer_dir, fans))
    return figures(mine, theirs, missing)


def sold_of(run: Journey) -> Sold:
    """A round of ours."""
    spent, bought = run.spent_s, run.crowd["bought"]
    services_s = spent[SUITE] + spent.get("sandbox", 0.0)
    databases_s = spent.get("PostgreSQL", 0.0) + spent.get("Valkey", 0.0)
    return Sold(bought, bought / run.crowd["seconds"], services_s, databases_s, load_s=spent["crowd"])


def figures(mine: Sequence[Sold], theirs: Sequence[Sold], missing: str) -> Figures:
    """Both sides, by the medians of their rounds. `missing` says why there are none of theirs."""
    ours_ms, rows = median(sold.ms for sold in mine), [_row("ours", mine)]
    what, aims = "P12 processor time of a ticket, the line and a provider included", f"at least {AT_LEAST}, aim {AIM}"
    if missing:
        rows.append(("TigerFans", missing, "", "", "", "", ""))
        return Figures(HEADINGS, rows, [Claim(what, f"{ours_ms:.1f} ms", f"TigerFans: {missing}", "–", aims)])
    theirs_ms = median(sold.ms for sold in theirs)
    ratio = theirs_ms / ours_ms
    rows.append(_row("TigerFans", theirs))
    beside = f"TigerFans, without them, {theirs_ms:.1f} ms"
    result = f"{ratio:.2f} ×, {verdict(met=ratio >= AT_LEAST)}"
    return Figures(HEADINGS, rows, [Claim(what, f"{ours_ms:.1f} ms", beside, result, aims)])


def _row(name: str, rounds: Sequence[Sold]) -> tuple[str, ...]:
    def each(seconds: Sequence[float]) -> str:
        return f"{median(s / sold.tickets * MS_PER_S for s, sold in zip(seconds, rounds, strict=True)):.1f}"

    return (
        name, f"{median(sold.tickets for sold in rounds):,.0f}", f"{median(sold.per_s for sold in rounds):,.0f}",
        f"{median(sold.ms for sold in rounds):.1f}", each([sold.services_s for sold in rounds]),
        each([sold.databases_s for sold in rounds]), each([sold.load_s for sold in rounds]),
    )  # fmt: skip


async def _fetch(folder: Path) -> Path:
    """Clones and installs the peer. Raises `NotToBeHad`."""
    source, venv = folder / "source", folder / "venv"
    steps = {
        "cloned": ["git", "clone", "-q", "--depth", "1", os.environ.get(COPY, ADDRESS), str(source)],
        "given a virtual environment": [sys.executable, "-m", "venv", str(venv)],
        "installed": [str(venv / "bin/pip"), "install", "-q", "-r", str(source / "requirements.txt")],
    }
    for done, command in steps.items():
        code, output = await _run(command)
        if code:
            raise NotToBeHad(f"could not be {done} where this ran: {output.strip().splitlines()[-1:]}")
    return folder


async def _theirs(trial: Trial, folder: Path, tickets: int) -> Sold:
    port, python = free_port(), folder / "venv/bin/python"
    base, engines = f"http://{HOST}:{port}", trial.testbed.pids
    child = Child.start(
        ["env", "-C", str(folder / "source"), python, "-m", "uvicorn", "tigerfans.server:app", "--host", HOST, "--port",
         str(port), "--workers=1", "--no-access-log"],
        name="TigerFans", lock_path=folder / "lock", log_path=folder / "log", stop_signal="TERM",
        env={**environment_without_ours(), "DATABASE_URL": trial.postgres_url, "REDIS_URL": trial.redis_url,
             "ACCT_BACKEND": "pg", "PAYSESSION_BACKEND": "redis", "MOCK_WEBHOOK_URL": f"{base}/payments/webhook"},
    )  # fmt: skip
    try:
        await until_ready(child, port, "/")
        before = cpu_s(child._supervisor.pid), cpu_s(*engines.values())
        load_before_s = _children_s()
        load = ["--base", base, "--total", str(tickets), "--concurrency", str(CONCURRENCY)]
        code, output = await _run([str(python), str(folder / "source/bench/load_client.py"), *load])
        services_s, databases_s = (
            after_s - before_s
            for after_s, before_s in zip((cpu_s(child._supervisor.pid), cpu_s(*engines.values())), before, strict=True)
        )
        paid, rate = PAID.search(output), RATE.search(output)
        if code or not paid or not rate or not int(paid[1]):
            raise CheckFailed(f"TigerFans' load client: {output[-500:]}")
        return Sold(int(paid[1]), float(rate[1]), services_s, databases_s, load_s=_children_s() - load_before_s)
    finally:
        await child.stop()


def _children_s() -> float:
    """Processor seconds of the children of this process that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


async def _run(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(STEP_S):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
