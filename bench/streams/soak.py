"""Ten minutes of listeners that connect and leave while frames are sent: the server's memory must not grow."""

import asyncio
import random
import time

from bench.harness.measurement import Claim, Effort, Figures, Finding
from bench.harness.testbed import Testbed
from bench.streams.crowd import crowd
from bench.streams.listeners import ListenerGroup
from bench.streams.sides import StreamServer, our_notifier
from bench.streams.streams import pss_bytes

SECONDS, QUICK_SECONDS = 600.0, 4.0
STAY, CHURN = 2_000, 1_000
QUICK_STAY, QUICK_CHURN = 40, 20
FRAME_S = 0.5
HEADINGS = ("after", "came and went", "memory MiB", "frames heard by who stayed")


def soak() -> Finding:
    """The finding, not yet made."""
    return Finding(
        key="soak",
        title="listeners that come and go",
        settings=[
            f"One notifier for {SECONDS / 60:.0f} minutes. {STAY:,} listeners stay; {CHURN:,} more connect, listen for "
            f"a moment and leave, over and over; a frame every {FRAME_S:g} s is told to all.",
            "Memory: the server's PSS between two crowds, when only those are left who stay.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Looks at the memory ten times; the claim compares the first look after warming up with the last."""
    seconds = QUICK_SECONDS if effort.quick else SECONDS
    stay, churn = (QUICK_STAY, QUICK_CHURN) if effort.quick else (STAY, CHURN)
    looks: list[float] = []
    rows: list[tuple[str, ...]] = []
    async with (
        testbed.trial() as trial,
        our_notifier(trial, "detached") as carrier,
        crowd(carrier.groups(stay)) as listeners,
    ):
        telling = asyncio.create_task(_publish_frames(carrier))
        began_s, gone = time.monotonic(), 0
        for n in range(1, 11):
            while time.monotonic() - began_s < seconds * n / 10:
                gone += await _churn(carrier, stay, churn)
            looks.append(pss_bytes(carrier.pids) / 2**20)
            result = sum(one["heard"] for one in await listeners.collect())
            rows.append((f"{time.monotonic() - began_s:.0f} s", f"{gone:,}", f"{looks[-1]:.1f}", f"{result:,}"))
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        lost = sum(one["lost"] for one in await listeners.collect())
    grown = (looks[-1] - looks[1]) / looks[1]
    what, early = f"memory after {gone:,} streams that came and went", f"at a fifth of the time {looks[1]:.1f} MiB"
    claim = Claim(what, f"{looks[-1]:.1f} MiB", early, f"{grown:+.1%}", "flat: within 5 %")
    return Figures(HEADINGS, rows, [claim], [f"{lost} of those who stayed lost their stream"])


async def _churn(carrier: StreamServer, stay: int, churn: int) -> int:
    """Another crowd, for a moment."""
    (order,) = carrier.groups(churn)
    another = ListenerGroup(order.kind, order.port, order.path, churn, first=stay)
    async with crowd([another]):
        await asyncio.sleep(random.uniform(0.2, 1.0))
    await asyncio.sleep(0.3)
    return churn


async def _publish_frames(carrier: StreamServer) -> None:
    while True:
        await carrier.publish(f"@{time.time_ns()}@")
        await asyncio.sleep(FRAME_S)
