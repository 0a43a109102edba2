"""`python -m bench [joins] [reservations]`: measures what is named, prints ratios, writes `bench/RESULTS.md`."""

import argparse
import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench import load, machine, report
from bench.joins import joins
from bench.load import Load
from bench.measurement import Measurement, Round, Side, summed_up
from bench.reservations import reservations
from bench.stage import Stage, stage
from onsale.loopback import HOST

MEASUREMENTS = {"joins": joins, "reservations": reservations}
HERE = Path(__file__).parent
DATA = HERE.parent / ".onsale"


@dataclass(frozen=True)
class Options:
    """What the person typed."""

    names: Sequence[str]
    seconds: float
    connections: int
    rounds: int

    def typed(self) -> str:
        names = " ".join(self.names)
        return (
            f"python -m bench {names} --seconds {self.seconds:g} --connections {self.connections} "
            f"--rounds {self.rounds}"
        )


def parsed(arguments: Sequence[str] | None = None) -> Options:
    """Options from the command line; no name means all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; none means all")
    parser.add_argument("--seconds", type=float, default=8, help="measured time of one side's round")
    parser.add_argument("--connections", type=int, default=128, help="keep-alive connections of the load generator")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(MEASUREMENTS):
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}; there are {', '.join(MEASUREMENTS)}")
    if given.seconds <= 0 or given.connections < 1 or given.rounds < 1:
        parser.error("seconds, connections and rounds must be positive")
    return Options(given.names or list(MEASUREMENTS), given.seconds, given.connections, given.rounds)


async def main(options: Options) -> None:
    """Run it all, say it, write it down."""
    console = Console(highlight=False)
    measurements = [MEASUREMENTS[name]() for name in options.names]
    async with stage(DATA) as engines:
        about = machine.machine(engines.data_dir)
        settings = await engines.settings()
        for measurement in measurements:
            await measure(engines, measurement, options, console)
            report.show(console, measurement)
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = report.document(measurements, machine=about, engines=settings, date=date, how=options.typed())
    (HERE / "RESULTS.md").write_text(text)


async def measure(stage: Stage, measurement: Measurement, options: Options, console: Console) -> None:
    """The sides take turns, so that a noisy minute of the machine hits both."""
    measurement.rounds = {side.name: [] for side in measurement.sides}
    for number in range(1, options.rounds + 1):
        for side in measurement.sides:
            done = await one_round(stage, side, options)
            measurement.rounds[side.name].append(done)
            console.print(f"{measurement.key} round {number}, {side.name}: {done.per_second:,.0f}/s", style="dim")


async def one_round(stage: Stage, side: Side, options: Options) -> Round:
    """Start one side, load it, compare its ledger with its answers, stop it."""
    async with stage.turn() as turn, side.open(turn) as target:
        gc.collect()
        heard = await load.run_apart(
            Load(HOST, target.port, target.requests, options.connections, options.seconds, repeat=target.repeat)
        )
        return summed_up(heard, await target.check(heard))


if __name__ == "__main__":
    asyncio.run(main(parsed()))
