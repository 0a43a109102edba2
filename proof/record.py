"""The record of everything that `make proof` has tried at random: how often each fault, with what end. Runs add up.

Kept in `record.json` and shown in `docs/reference/recovery.md`, which `proof/drills/recoveries.py` writes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import orjson

from proof.part import Result

SAVED = Path(__file__).parent / "record.json"
HEAD = """\

## What was tried at random, and how often

What `make proof` has done in all its runs. Trials are random sales with random faults at random times
(`proof/swarm`): after each, everything healed by itself, every fan's visit ended, the audit was clean, and
the independent checker compared what had been acknowledged with the databases and the provider's books. "Survived"
is how many times nothing was found. "Longest silence" is the longest time for which a fan who asked again and again
had no good answer while the fault lasted or afterwards, also for another reason: several faults overlap. "Lost" is
what had been acknowledged and did not hold. What was found has been mended, and has a test that fails without.
The hours are the sum of all runs, of which up to three ran side by side on a machine with two cores.

"""


@dataclass(frozen=True)
class Tally:
    """One fault: how often it was tried and survived, the longest silence, what was lost, and the first day."""

    fault: str
    tried: int
    survived: int
    silence_s: float
    lost: int
    since: str

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.fault, self.tried + other.tried, self.survived + other.survived,
            max(self.silence_s, other.silence_s), self.lost + other.lost, min(self.since, other.since),
        )  # fmt: skip


@dataclass(frozen=True)
class Record:
    """All runs until now: hours, the first and the last day, the sums of their counts, and a tally for each fault."""

    hours: float = 0.0
    since: str = ""
    until: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, Tally] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, seconds: float, *, date: str | None = None) -> Self:
        """The record of one run that took so long."""
        day = date or datetime.now(UTC).strftime("%Y-%m-%d")
        tallies = _summed(
            Tally(trial.fault, 1, int(trial.survived), trial.silence_s, trial.lost, day) for trial in result.trials
        )
        return cls(seconds / 3600, day, day, dict(result.counts), tallies)

    @classmethod
    def read(cls, path: Path | None = None) -> Self:
        """What was saved; an empty record if nothing was."""
        path = path or SAVED
        if not path.exists():
            return cls()
        document = orjson.loads(path.read_bytes())
        return cls(**document | {"faults": {row["fault"]: Tally(**row) for row in document["faults"]}})

    def write(self, path: Path | None = None) -> None:
        document = asdict(self) | {"faults": [asdict(tally) for tally in self._rows()]}
        (path or SAVED).write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")

    def __add__(self, other: "Record") -> "Record":
        if not self.until or not other.until:
            return self if self.until else other
        return replace(
            self, hours=round(self.hours + other.hours, 3),
            since=min(self.since, other.since), until=max(self.until, other.until),
            counts=dict(Counter(self.counts) + Counter(other.counts)),
            faults=_summed([*self.faults.values(), *other.faults.values()]),
        )  # fmt: skip

    def section(self) -> str:
        """The part of the page; empty if nothing was tried yet."""
        if not self.until:
            return ""
        rows = "".join(
            f"| {row.fault} | {row.tried:,} | {row.survived:,} | {row.silence_s:g} s | {row.lost:,} | {row.since} |\n"
            for row in self._rows()
        )
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        sums = f"{self.since} to {self.until}, {self.hours:.1f} hours: {counts}.\n\n"
        head = "| Fault | Tried | Survived | Longest silence | Lost | Since |\n|---|---|---|---|---|---|\n"
        return HEAD + sums + head + rows

    def _rows(self) -> list[Tally]:
        return sorted(self.faults.values(), key=lambda tally: tally.fault.lower())


def _summed(tallies: Iterable[Tally]) -> dict[str, Tally]:
    sums: dict[str, Tally] = {}
    for tally in tallies:
        sums[tally.fault] = sums[tally.fault] + tally if tally.fault in sums else tally
    return sums
