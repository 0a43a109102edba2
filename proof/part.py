"""A part of `make proof`: what it is given and what it returns."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Budget:
    """About so many seconds, and the seed of every random choice: the same seed makes the same choices."""

    seconds: float
    seed: int


@dataclass(frozen=True)
class Trial:
    """One fault, tried once. `silence_s`: the longest time for which a fan had no good answer. `lost`: the number of
    acknowledgements that did not hold afterwards. It survived if nothing was lost and no invariant was broken.
    """

    fault: str
    survived: bool
    silence_s: float
    lost: int


@dataclass
class Result:
    """`counts` are numbers of what was tried, by a plural noun (`histories`). `found`: a sentence for each defect and
    the command that shows it again.
    """

    counts: dict[str, int] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def add(self, other: "Result") -> None:
        for name, count in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.trials += other.trials
        self.found += other.found
