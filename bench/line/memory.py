"""P8: Redis memory per waiting fan, compared with a member of a sorted set."""

import redis.asyncio

from bench.baselines.line_designs import SortedSet
from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed, Trial
from bench.line.waiting_rooms import Queue, queue

SIZES, QUICK_SIZES = (10_000, 100_000, 1_000_000, 2_000_000), (1_000, 5_000)
AT_LEAST_BYTES, AIM_BYTES, WINDOWS = 2, 0.7, 3
HEADINGS = ("waiting fans", "ours: bytes by keys", "by data set", "sorted set: bytes by keys", "by data set",
            "ratio")  # fmt: skip


def memory() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P8",
        title="memory of the engine per waiting fan",
        settings=[
            "Ours: numbers given and landed by the real scripts, then a sign of life of every fan in all "
            f"{WINDOWS} windows, the most a line can hold; a tenth called before, so that every bitmap stands.",
            "By keys: `MEMORY USAGE` over all keys, the room included. By data set: growth of `used_memory_dataset` "
            "from the empty engine's; with few fans the engine's own ups and downs show in it.",
            "Sorted set: one member of 22 characters per fan.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Measures both sides at each size, each on an empty Redis."""
    rows: list[tuple[str, ...]] = []
    largest = (0.0, 0.0)
    for size in QUICK_SIZES if effort.quick else SIZES:
        async with testbed.trial() as trial, queue(trial, rate_per_s=100_000, liveness_window_s=600) as line:
            ours = await ours_bytes(line, size)
        async with testbed.trial() as trial:
            theirs = await sorted_set_bytes(trial, size)
        mine, other = ours[0] / size, theirs[0] / size
        largest = (mine, other)
        rows.append((
            f"{size:,}", f"{mine:.3f}", f"{ours[1] / size:.3f}", f"{other:.1f}", f"{theirs[1] / size:.1f}",
            f"{other / mine:,.0f} ×",
        ))  # fmt: skip
    claim = Claim(
        f"P8 bytes per waiting fan, {size:,} waiting", f"{largest[0]:.2f}", f"sorted set {largest[1]:.0f}",
        f"{largest[1] / largest[0]:,.0f} × less", f"at most {AT_LEAST_BYTES}, aim {AIM_BYTES}",
    )  # fmt: skip
    return Figures(HEADINGS, rows, [claim])


async def ours_bytes(line: Queue, size: int) -> tuple[int, int]:
    """Bytes by keys and by data set of a line with `size` fans waiting and every possible bit set."""
    before = await used(line.redis)
    await line.join_all(size + size // 10)
    line.advance_clock(1000)
    called = 0
    while called < size // 10:
        line.advance_clock(20)
        called += await line.tick()
    for _ in range(WINDOWS - 1):  # joining was the heartbeat of the first window
        line.advance_clock(line.room.liveness_window_s * 1000)
        await line.report_all_alive(size + size // 10)
    for pattern in ("*:called", "*:unwritten"):
        await line.redis.delete(*[key async for key in line.redis.scan_iter(pattern)])
    return await by_keys(line.redis), await used(line.redis) - before


async def sorted_set_bytes(trial: Trial, size: int) -> tuple[int, int]:
    """The same for a sorted set."""
    async with trial.redis() as client:
        before = await used(client)
        async with SortedSet.on(trial, connections=1) as design:
            await design.fill(size)
        return await by_keys(client), await used(client) - before


async def by_keys(client: redis.asyncio.Redis) -> int:
    """Bytes of all keys by MEMORY USAGE, every element counted."""
    keys = [key async for key in client.scan_iter(count=1000)]
    return sum([await client.execute_command("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys])


async def used(client: redis.asyncio.Redis) -> int:
    return int((await client.info("memory"))["used_memory_dataset"])
