"""P11: one, two and four whole suites on the one port of `onsale up --processes`, and what a fan costs in each."""

from collections.abc import Mapping
from statistics import median

from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed, verdict
from bench.journey.commands import SUITE, Journey, Visitors, demo_suite
from bench.journey.journey import ARRIVE_OVER_S, EVENT_ID, FANS, QUICK_FANS, QUICK_S, cost_us, require_guarantees

PROCESSES, MANY = (1, 2, 4), 4
FASTER, DEARER = (1.2, 1.5), (1.15, 1.05)
HEADINGS = ("processes", "fans", "purchases a second", "processor ms a fan", "suite", "PostgreSQL", "order p95 ms")


def suites() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P11",
        title="whole suites on one port",
        settings=[
            f"`onsale up --demo --processes N`, then {FANS:,} fans over {ARRIVE_OVER_S:g} s as in J; the crowd, the "
            "sandbox and the databases share the machine with them. Figures are medians of the rounds, which take "
            "turns.",
            f"Every process makes batches of its own: a fan costs more where {MANY} processes share the fans of one. "
            f"What {MANY} processes cost on a machine with cores for all of them is therefore compared with one "
            "process that has the part of the fans that each of them has.",
        ],
        find=find,
    )  # fmt: skip


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs each number of processes with all fans, and one process with the part of one of many."""
    fans, over_s = (QUICK_FANS, QUICK_S) if effort.quick else (FANS, ARRIVE_OVER_S)
    sizes = [(1, fans // MANY), *((processes, fans) for processes in PROCESSES)]
    runs: dict[tuple[int, int], list[Journey]] = {size: [] for size in sizes}
    for number in range(effort.rounds):
        for processes, come in sizes:
            visitors = Visitors.simulated(EVENT_ID, fans=come, arrive_over_s=over_s)
            data_dir = testbed.data_dir / f"suites-{number}-{processes}-{come}"
            async with demo_suite(data_dir, "--demo", "--processes", str(processes)) as suite:
                runs[processes, come].append(await suite.visit(visitors))
                await suite.check_books(EVENT_ID)
    for run in (each for rounds in runs.values() for each in rounds):
        require_guarantees(run)
    return figures(runs, fans)


def figures(runs: Mapping[tuple[int, int], list[Journey]], fans: int) -> Figures:
    """The table and the claims of these runs, by the number of processes and of fans."""
    per_s = {size: median(run.crowd["bought"] / run.crowd["seconds"] for run in each) for size, each in runs.items()}
    us = {size: cost_us(each, size[1]) for size, each in runs.items()}
    all_ms = {size: sum(parts.values()) / 1000 for size, parts in us.items()}
    rows: list[tuple[str, ...]] = [
        (f"{size[0]}", f"{size[1]:,}", f"{per_s[size]:,.0f}", f"{all_ms[size]:.1f}", f"{us[size][SUITE] / 1000:.1f}",
         f"{us[size]['PostgreSQL'] / 1000:.1f}",
         f"{median(run.crowd['calls_ms']['create_order']['p95'] for run in each):,.0f}")
        for size, each in runs.items()
    ]  # fmt: skip
    one, two, many, part = (1, fans), (2, fans), (MANY, fans), (1, fans // MANY)
    faster, dearer = per_s[two] / per_s[one], all_ms[many] / all_ms[part]
    claims = [
        Claim("P11 two processes beside one: purchases a second", f"{per_s[two]:,.0f}/s", f"{per_s[one]:,.0f}/s",
              f"{faster:.2f} ×, {verdict(met=faster >= FASTER[0])}", f"at least {FASTER[0]:g} ×, aim {FASTER[1]:g}"),
        Claim(f"P11 {MANY} processes beside one with a {MANY}th of the fans: processor time of one",
              f"{all_ms[many]:.1f} ms", f"{all_ms[part]:.1f} ms", f"{dearer:.2f} ×, {verdict(met=dearer <= DEARER[0])}",
              f"at most {DEARER[0]:g} ×, aim {DEARER[1]:g}"),
    ]  # fmt: skip
    return Figures(HEADINGS, rows, claims, ["nothing oversold, nobody overtaken, no number twice; books right"])
