"""Ten minutes of listeners that connect and leave while frames are sent: the server's memory must not grow."""

import asyncio
import random
import time

from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed
from bench.streams.listeners import ListenerGroup, connect_listeners
from bench.streams.streams import StreamServer, our_notifier, pss_bytes

SECONDS, QUICK_SECONDS = 600.0, 4.0
STAY, CHURN = 2_000, 1_000
QUICK_STAY, QUICK_CHURN = 40, 20
FRAME_S = 0.5
HEADINGS = ("after", "came and went", "memory MiB", "frames heard by who stayed")


def soak() -> Finding:
    """The finding, before it is measured."""
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
    """Measures the memory ten times; the claim compares the first measurement after the warm-up with the last."""
    seconds = QUICK_SECONDS if effort.quick else SECONDS
    stay, churn = (QUICK_STAY, QUICK_CHURN) if effort.quick else (STAY, CHURN)
    memory_mib: list[float] = []
    rows: list[tuple[str, ...]] = []
    async with (
        testbed.trial() as trial,
        our_notifier(trial, "detached") as server,
        connect_listeners(server.groups(stay)) as listeners,
    ):
        publishing = asyncio.create_task(_publish_frames(server))
        began_s, gone = time.monotonic(), 0
        for n in range(1, 11):
            while time.monotonic() - began_s < seconds * n / 10:
                gone += await _churn(server, stay, churn)
            memory_mib.append(pss_bytes(server.pids) / 2**20)
            result = sum(one["received"] for one in await listeners.collect())
            rows.append((f"{time.monotonic() - began_s:.0f} s", f"{gone:,}", f"{memory_mib[-1]:.1f}", f"{result:,}"))
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        lost = sum(one["lost"] for one in await listeners.collect())
    grown = (memory_mib[-1] - memory_mib[1]) / memory_mib[1]
    what, early = f"memory after {gone:,} streams that came and went", f"at a fifth of the time {memory_mib[1]:.1f} MiB"
    claim = Claim(what, f"{memory_mib[-1]:.1f} MiB", early, f"{grown:+.1%}", "flat: within 5 %")
    return Figures(HEADINGS, rows, [claim], [f"{lost} of those who stayed lost their stream"])


async def _churn(server: StreamServer, stay: int, churn: int) -> int:
    """Connects more listeners for a moment; their number."""
    (group,) = server.groups(churn)
    another = ListenerGroup(group.kind, group.port, group.path, churn, first=stay)
    async with connect_listeners([another]):
        await asyncio.sleep(random.uniform(0.2, 1.0))
    await asyncio.sleep(0.3)
    return churn


async def _publish_frames(server: StreamServer) -> None:
    while True:
        await server.publish(f"@{time.time_ns()}@")
        await asyncio.sleep(FRAME_S)
