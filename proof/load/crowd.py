"""A process of fans, what it has written, and how a suite did in a span of seconds."""

import json
import signal
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from proof.load.fans import Plan
from tests.support.running.program import Program
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Span:
    """Seconds in a row, summed up; `p95_ms` is the median of the seconds' own."""

    seconds: int
    answers: int
    refused: int
    bad: Counter[str]
    bought: int
    p95_ms: float
    slowest_ms: float
    silence_s: int
    unsold_s: int

    @classmethod
    def of(cls, seconds: Sequence[dict[str, Any]]) -> "Span":
        """`silence_s` and `unsold_s` are the longest runs of seconds without a good answer, and without a purchase."""
        bad: Counter[str] = Counter()
        for second in seconds:
            bad.update(second["bad"])
        return cls(
            len(seconds), sum(s["answers"] for s in seconds), sum(s["refused"] for s in seconds), bad,
            sum(s["bought"] for s in seconds), statistics.median([s["p95_ms"] for s in seconds] or [0.0]),
            max([s["slowest_ms"] for s in seconds], default=0.0),
            _longest_without(s["answers"] - s["refused"] - sum(s["bad"].values()) for s in seconds),
            _longest_without(s["bought"] for s in seconds),
        )  # fmt: skip

    def __str__(self) -> str:
        bad = f", bad: {dict(self.bad)}" if self.bad else ""
        return (
            f"{self.answers} answers in {self.seconds} s, {self.bought} purchases, {self.refused} refused, "
            f"p95 {self.p95_ms:.0f} ms, slowest {self.slowest_ms:.0f} ms{bad}"
        )  # fmt: skip


def _longest_without(counts: Iterable[int]) -> int:
    """The longest run of zeros."""
    return max((len(list(run)) for some, run in groupby(counts, bool) if not some), default=0)


class Crowd:
    """Starts at once; `end` lets every fan go."""

    def __init__(self, plan: Plan, log_path: Path) -> None:
        unstarted = "ignore:coroutine"  # of fans who are let go before they have begun
        command = [sys.executable, "-W", unstarted, "-m", "proof.load.fans", json.dumps(asdict(plan))]
        self._program, self._log_path = Program(command, log_path, cwd=ROOT), log_path
        self._program.start()

    def seconds(self) -> list[dict[str, Any]]:
        """Every second that is over."""
        lines = self._log_path.read_text().split("\n")[:-1]
        broken = [line for line in lines if not line.startswith("{")]
        assert not broken, "\n".join(lines[-20:])
        return [json.loads(line) for line in lines]

    def span(self, since_s: float = 0, until_s: float = float("inf")) -> Span:
        """The seconds that began at these times of the clock."""
        return Span.of([second for second in self.seconds() if since_s <= second["at_s"] < until_s])

    async def until(self, counted: Literal["answers", "bought"]) -> None:
        """Returns once there are some; a process of fans takes seconds to start."""
        await wait_until(lambda: getattr(self.span(), counted) > 0, timeout_s=120, interval_s=0.2)

    def end(self) -> Span:
        self._program.end(signal.SIGTERM, within_s=30)
        return self.span()
