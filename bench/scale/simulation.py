"""`python -m bench.scale.simulation`: a night simulated by discrete events, on this machine and on more than we have.

Cohorts of fans pass through processes, cores and databases, each of which serves one piece of work at a time and for as
long as its measured cost says (the coefficients of `onsale plan`). What takes longest to get through binds the night.
The prediction for this machine stands beside the night that was measured here (`make night`).
"""

import argparse
import io
import itertools
import json
import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import simpy
from rich.console import Console
from rich.table import Table

from bench.harness.measurement import US_PER_S
from bench.record.page_blocks import Block
from onsale.capacity.sale import PATH, Coefficients, parse

SERVICES, DATABASES, CROWD = ("gateway", "queue", "inventory", "orders", "notifier"), ("postgres", "valkey"), "crowd"
TICK_S, FRAME_WINDOW_S, PROVIDER_S = 0.2, 1.0, 0.05
POLL_S, MORE_CALLS = 10.0, 1_000  # of the gateway: time between polls, and places that may be called beyond the tickets
COHORTS, JOINS_IN_FLIGHT = 2_000, 1  # a gateway has one batch of an event's joins in flight
NIGHT = Path(__file__).parents[1] / "results" / "night.json"
GUIDE = Path(__file__).parents[2] / "docs" / "operate" / "capacity.md"
BLOCK, WIDTH = Block("simulation", "`make night`, `make bench` and `python -m bench.scale.simulation --save`"), 120
Steps = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Night:
    """Fans, who come evenly over `arrive_over_s`, tickets, open streams, and the operator's settings. The sale begins
    after `begin_s`.
    """

    fans: int
    tickets: int
    streams: int
    rate_per_s: float = 150
    max_active: int = 1000
    begin_s: float = 0
    liveness_s: float = 240
    polls_per_s: float = 2_000
    arrive_over_s: float = 0

    @property
    def reach(self) -> int:
        """Places that may be called; those behind them poll when the tickets are gone."""
        return self.tickets + MORE_CALLS


@dataclass(frozen=True)
class Installation:
    """Machines with so many cores each, and processes of each service. With more than one machine PostgreSQL and Valkey
    have a machine each; the crowd has its own unless `with_crowd`.
    """

    machines: int
    cores: int
    processes: Mapping[str, int]
    with_crowd: bool = False

    def plus(self, service: str) -> "Installation":
        """The same with one process more of this service."""
        return replace(self, processes={**self.processes, service: self.processes[service] + 1})


@dataclass
class Outcome:
    """Seconds until all had joined, until all was sold, and until the last fan had heard; busy seconds by part."""

    joined_s: float = 0.0
    sold_out_s: float = 0.0
    over_s: float = 0.0
    busy_s: dict[str, float] = field(default_factory=dict)
    busiest: dict[str, float] = field(default_factory=dict)

    @property
    def binding(self) -> str:
        """The part whose processes were busy for the largest share of the night."""
        return max(self.busiest, key=lambda part: self.busiest[part])


class Server:
    """One process, or one database: serves one piece of work at a time (PostgreSQL: one for each core)."""

    def __init__(self, env: simpy.Environment, cores: simpy.Resource, *, threads: int = 1) -> None:
        self.env, self.cores, self.threads = env, cores, simpy.Resource(env, threads)
        self.busy_s = 0.0

    @property
    def load(self) -> int:
        return int(self.threads.count) + len(self.threads.queue)

    def work(self, seconds: float) -> Steps:
        with self.threads.request() as thread:
            yield thread
            with self.cores.request() as core:
                yield core
                yield self.env.timeout(seconds)
                self.busy_s += seconds


class Simulation:
    """One night on one installation. `costs` are µs of processor by operation and part, as `join.gateway`."""

    def __init__(self, night: Night, installation: Installation, costs: Mapping[str, float], *, seed: int = 1) -> None:
        self.env, self.night, self.costs = simpy.Environment(), night, costs
        self.random = random.Random(seed)
        self.cohort = max(1, night.fans // COHORTS)
        self.servers = self._placed(installation)
        self.outcome = Outcome()
        self.joined = self.called = self.active = self.sold = 0
        self.left = night.fans
        self.sold_out, self.over = self.env.event(), self.env.event()
        self._joins = simpy.Resource(self.env, JOINS_IN_FLIGHT * installation.processes["gateway"])

    def _placed(self, installation: Installation) -> dict[str, list[Server]]:
        """The servers of each part on their machines."""
        machines = [simpy.Resource(self.env, installation.cores) for _ in range(installation.machines)]
        alone = len(machines) > len(DATABASES)
        homes = itertools.cycle(machines[len(DATABASES) :] if alone else machines)
        placed = {
            name: [Server(self.env, next(homes)) for _ in range(installation.processes[name])] for name in SERVICES
        }
        for n, name in enumerate(DATABASES):
            threads = installation.cores if name == "postgres" else 1
            placed[name] = [Server(self.env, machines[n if alone else 0], threads=threads)]
        own = simpy.Resource(self.env, 1_000)  # fans bring their own processors
        placed[CROWD] = [Server(self.env, machines[0] if installation.with_crowd else own, threads=1_000)]
        return placed

    def run(self) -> Outcome:
        cohorts = [self.cohort] * (self.night.fans // self.cohort)
        cohorts[-1] += self.night.fans - sum(cohorts)
        for n, fans in enumerate(cohorts):
            self.env.process(self._cohort(fans, n / len(cohorts) * self.night.arrive_over_s))
        self.env.process(self._gatekeeper())
        self.env.process(self._frames())
        self.env.run(until=self.over)
        outcome = self.outcome
        outcome.over_s = self.env.now
        for name, servers in self.servers.items():
            outcome.busy_s[name] = sum(server.busy_s for server in servers)
            if name != CROWD:
                threads = sum(server.threads.capacity for server in servers)
                outcome.busiest[name] = outcome.busy_s[name] / threads / outcome.over_s
        return outcome

    def _work(self, operation: str, times: int) -> Steps:
        """The operation, so many times, at each part it costs something, one part after the other."""
        for part in (CROWD, *SERVICES, *DATABASES):
            cost_us = self.costs.get(f"{operation}.{part}", 0.0)
            if cost_us:
                least = min(self.servers[part], key=lambda server: server.load)
                yield from least.work(cost_us * times / US_PER_S)

    def _cohort(self, fans: int, arrives_s: float) -> Steps:
        """Joins, then polls until everything is sold. Buyers are taken from the line as numbers, not from cohorts."""
        yield self.env.timeout(arrives_s)
        with self._joins.request() as turn:
            yield turn
            yield from self._work("join", fans)
        self.joined += fans
        place = self.joined
        if self.joined >= self.night.fans:
            self.outcome.joined_s = self.env.now
        polling = round(fans * (1 - self.night.streams / self.night.fans))
        while not self.sold_out.triggered:
            yield self.env.timeout(self._poll_s(place))
            yield from self._work("status", polling)
        self._leave(fans)

    def _poll_s(self, place: int) -> float:
        """The time to the next poll that the gateway tells a fan at this place (`waiting_line/snapshot.py`)."""
        night = self.night
        if place <= night.reach:
            return POLL_S * self.random.uniform(0.8, 1.0)
        waiting, left = self.joined - self.called, night.tickets - self.called
        to_sale_s = max(0.0, night.begin_s - self.env.now)
        news_s = to_sale_s + left / night.rate_per_s
        news_s += max(POLL_S, waiting / night.polls_per_s) * self.random.uniform(0.0, 1.0)
        wait_s = to_sale_s + (place - self.called) / night.rate_per_s
        return max(1.0, min(news_s, min(night.liveness_s, 0.75 * wait_s) * self.random.uniform(0.8, 1.0)))

    def _leave(self, fans: int) -> None:
        self.left -= fans
        if self.left <= 0 and not self.over.triggered:
            self.over.succeed()

    def _gatekeeper(self) -> Steps:
        """Calls fans at the rate while slots and tickets last."""
        yield self.env.timeout(self.night.begin_s)
        while self.called < self.night.tickets:
            free = min(self.night.max_active - self.active, self.night.tickets - self.called, self.joined - self.called)
            calls = min(free, round(self.night.rate_per_s * TICK_S))
            if calls > 0:
                self.called += calls
                self.active += calls
                on_stream = round(calls * self.night.streams / self.night.fans)
                for fans, waits_s in ((on_stream, 0.0), (calls - on_stream, POLL_S)):
                    for _ in range(fans):
                        self.env.process(self._buyer(self.random.uniform(0.0, waits_s)))
            yield self.env.timeout(TICK_S)

    def _buyer(self, hears_after_s: float) -> Steps:
        """Hears of the call, claims, holds, orders, and is confirmed once the provider has answered."""
        yield self.env.timeout(hears_after_s)
        for operation in ("status", "claim", "hold", "order"):
            yield from self._work(operation, 1)
        yield self.env.timeout(PROVIDER_S)
        self.active -= 1
        self.sold += 1
        if self.sold >= self.night.tickets:
            self.outcome.sold_out_s = self.env.now
            self.sold_out.succeed()

    def _frames(self) -> Steps:
        """While the line moves each stream gets a frame in each window."""
        streams_each = self.night.streams / len(self.servers["notifier"])
        while not self.over.triggered:
            yield self.env.timeout(FRAME_WINDOW_S)
            if self.joined < self.night.fans or self.env.now >= self.night.begin_s:
                seconds = self.costs.get("frame.notifier", 0.0) * streams_each / US_PER_S
                for server in self.servers["notifier"]:
                    self.env.process(server.work(seconds))


def costs_of(known: Coefficients, *, crowd_us: float = 0.0) -> dict[str, float]:
    """µs by operation and part; `crowd_us` is what a call costs the program that plays the fans."""
    costs = {one.name: one.value for one in known if one.unit == "µs" and one.name.partition(".")[2] in
             (*SERVICES, *DATABASES)}  # fmt: skip
    return costs | {f"{operation}.{CROWD}": crowd_us for operation in ("join", "status", "claim", "hold", "order")}


THIS_MACHINE = Installation(1, 2, dict.fromkeys(SERVICES, 1), with_crowd=True)
TWENTY_MACHINES = Installation(
    20, 4, {"gateway": 24, "queue": 4, "inventory": 4, "orders": 8, "notifier": 16}
)  # fmt: skip
FIVE_MILLION = Night(
    fans=5_000_000, tickets=50_000, streams=300_000, rate_per_s=2_000, max_active=4_000, begin_s=300, polls_per_s=80_000
)


def measured_night(path: Path = NIGHT) -> dict[str, Any]:
    """The record of the night that was run here."""
    record: dict[str, Any] = json.loads(path.read_bytes())
    return record


def crowd_us(record: Mapping[str, Any]) -> float:
    """What a call cost the program that played the fans, by the record of the night."""
    return float(record["cpu_s_crowd"]) / sum(calls["count"] for calls in record["calls_ms"].values()) * US_PER_S


def predicted(record: Mapping[str, Any], known: Coefficients) -> Outcome:
    """The night of the record, simulated on this machine."""
    night = Night(
        record["fans"], record["tickets"], record["streams"], rate_per_s=record["rate_per_s"],
        max_active=record["max_active"], begin_s=record["begin_s"], liveness_s=record["liveness_s"],
        polls_per_s=record["polls_per_s"], arrive_over_s=record.get("arrive_over_s", 0),
    )  # fmt: skip
    return Simulation(night, THIS_MACHINE, costs_of(known, crowd_us=crowd_us(record))).run()


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the prediction for this machine, then the large night with one process more of each service."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.simulation", description=__doc__)
    parser.add_argument("--fans", type=int, default=FIVE_MILLION.fans, help="fans of the large night")
    parser.add_argument("--save", action="store_true", help="write docs/operate/capacity.md")
    given = parser.parse_args(arguments)
    if given.save:
        write()
        return
    share, known = given.fans / FIVE_MILLION.fans, parse(PATH.read_text())
    large = replace(
        FIVE_MILLION, fans=given.fans, tickets=round(FIVE_MILLION.tickets * share),
        streams=round(FIVE_MILLION.streams * share),
    )  # fmt: skip
    console = Console(highlight=False, width=WIDTH)
    console.print(prediction(measured_night(), known), table(large, TWENTY_MACHINES, costs_of(known)), sep="\n\n")


def prediction(record: Mapping[str, Any], known: Coefficients) -> str:
    """The night of the record beside what is predicted for it, and of when the figures are."""
    over_s, measured_s = predicted(record, known).over_s, record["seconds"]
    dates = sorted(measured.date for measured in known.measurements.values())
    return (
        f"This machine: {over_s:.0f} s predicted, {measured_s:.0f} s measured ({over_s / measured_s:.2f} ×).\n"
        f"The night of {record['date']}, costs of {dates[0]} to {dates[-1]}."
    )


def write(guide: Path = GUIDE) -> None:
    """Writes the prediction and the large night into docs/operate/capacity.md. Takes a minute."""
    known, text = parse(PATH.read_text()), io.StringIO()
    found = table(FIVE_MILLION, TWENTY_MACHINES, costs_of(known))
    Console(file=text, width=WIDTH, highlight=False).print(prediction(measured_night(), known), found, sep="\n\n")
    lines = "\n".join(line.rstrip() for line in text.getvalue().strip().splitlines())
    guide.write_text(BLOCK.replaced(guide.read_text(), f"```\n{lines}\n```"))


def table(night: Night, installation: Installation, costs: Mapping[str, float]) -> Table:
    """The night as installed, and with one process more of each service."""
    found = Table(title=f"{night.fans:,} fans, {night.tickets:,} tickets, {installation.machines} machines")
    for heading in ("processes", "all joined s", "sold out s", "over s", "binds", "busy"):
        found.add_column(heading, justify="left" if heading in ("processes", "binds") else "right")
    rows = {", ".join(f"{n} {name}" for name, n in installation.processes.items()): installation}
    rows |= {f"one {service} more": installation.plus(service) for service in SERVICES}
    for name, one in rows.items():
        outcome = Simulation(night, one, costs).run()
        times = (f"{seconds:.1f}" for seconds in (outcome.joined_s, outcome.sold_out_s, outcome.over_s))
        found.add_row(name, *times, outcome.binding, f"{outcome.busiest[outcome.binding]:.0%}")
    return found


if __name__ == "__main__":
    main()
