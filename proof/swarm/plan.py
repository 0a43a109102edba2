"""The plan of one trial: a pure value drawn from a seed. Printed as one line of JSON it can be run again."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import orjson

from proof.swarm.edges import ROOM, SALES, TYPES, draw, draw_settings
from proof.swarm.faults.machine import FAULTS
from shared.routes import SALE_SERVICES

BEHAVIOURS = (
    "buys", "buys", "buys", "pays in every way", "pays in every way", "declined, pays again", "cancels", "leaves",
    "comes back", "claims late", "keeps part", "releases", "watches",
)  # fmt: skip
ACTIONS = (
    "change rate", "pause", "admit", "block seat", "unblock seat", "resize", "open allotment", "refund order",
    "refund ticket", "edit event", "rebuild room", "reconcile", "release holds", "cancel order",
)  # fmt: skip
BEFORE_TYPES = "OtherVersion"  # its earlier code knows no price types
ARRIVE_OVER_S = 8.0
FAULTS_OVER_S = 12.0


@dataclass(frozen=True)
class PlannedFault:
    """`kind` is a class of `faults/`; times are seconds since fans began to arrive."""

    kind: str
    target: str
    at_s: float
    for_s: float
    seed: int

    @property
    def what(self) -> str:
        return FAULTS[self.kind].what(self.target)


@dataclass(frozen=True)
class PlannedFan:
    behaviour: str
    at_s: float
    seed: int
    repeats: bool = False  # sends every request twice at once, with the same key


@dataclass(frozen=True)
class PlannedAction:
    """Something that an operator does."""

    action: str
    at_s: float
    seed: int


@dataclass(frozen=True)
class Plan:
    """`copies` says how many processes each service has; `room` and `sales` are parts of the event file, and so are
    the numbers of its price types, `types`.
    """

    seed: int
    copies: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SALE_SERVICES, 1))
    settings: dict[str, str] = field(default_factory=dict)
    room: dict[str, Any] = field(default_factory=dict)
    sales: dict[str, Any] = field(default_factory=dict)
    fans: tuple[PlannedFan, ...] = ()
    actions: tuple[PlannedAction, ...] = ()
    faults: tuple[PlannedFault, ...] = ()
    types: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def from_seed(cls, seed: int, kinds: Sequence[str], *, fans_max: int = 36, faults_max: int = 8) -> Self:
        """The same seed and kinds of faults make the same plan."""
        rng = random.Random(seed)
        copies: dict[str, int] = {service: rng.choice((1, 1, 2)) for service in SALE_SERVICES}
        plan = cls(
            seed, copies, draw_settings(rng), draw(rng, ROOM), draw(rng, SALES),
            fans=tuple(_fan(rng) for _ in range(rng.randint(min(10, fans_max), fans_max))),
            actions=tuple(_action(rng) for _ in range(rng.randint(0, 8))),
            faults=tuple(_faults(rng, kinds, programs(copies), rng.randint(2, faults_max))),
        )  # fmt: skip
        has_types = rng.random() < 0.7 and not any(fault.kind == BEFORE_TYPES for fault in plan.faults)
        return replace(plan, types=draw(rng, TYPES) if has_types else {})

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        document: dict[str, Any] = orjson.loads(line)
        for name, part in (("fans", PlannedFan), ("actions", PlannedAction), ("faults", PlannedFault)):
            document[name] = tuple(part(**each) for each in document[name])
        return cls(**document)

    def json(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @property
    def programs(self) -> list[str]:
        return programs(self.copies)

    @property
    def faults_end_s(self) -> float:
        return max((fault.at_s + fault.for_s for fault in self.faults), default=0.0)

    def with_default_settings(self) -> "Plan":
        plain = Plan(self.seed)
        return replace(self, settings=plain.settings, room=plain.room, sales=plain.sales, types=plain.types)

    def with_one_copy(self) -> "Plan":
        """Faults of further copies happen to the first."""
        faults = tuple(replace(fault, target=fault.target.removesuffix("-2")) for fault in self.faults)
        return replace(self, copies=Plan(self.seed).copies, faults=faults)


def programs(copies: dict[str, int]) -> list[str]:
    """The names of the services' processes, as a fleet names them."""
    return [
        service if number == 1 else f"{service}-{number}"
        for service, count in copies.items()
        for number in range(1, count + 1)
    ]


def _fan(rng: random.Random) -> PlannedFan:
    at_s = round(rng.uniform(0, ARRIVE_OVER_S), 2)
    return PlannedFan(rng.choice(BEHAVIOURS), at_s, rng.getrandbits(32), repeats=rng.random() < 0.2)


def _action(rng: random.Random) -> PlannedAction:
    return PlannedAction(rng.choice(ACTIONS), round(rng.uniform(0, FAULTS_OVER_S), 2), rng.getrandbits(32))


def _faults(rng: random.Random, kinds: Sequence[str], there: list[str], count: int) -> list[PlannedFault]:
    """So many faults in the order of their times; two that touch the same thing do not overlap."""
    busy_until_s: dict[str, float] = {}
    faults = []
    for _ in range(count):
        kind = rng.choice(kinds)
        fault = FAULTS[kind]
        target = rng.choice(fault.targets(there))
        for_s = round(rng.uniform(fault.shortest_s, fault.longest_s), 2)
        touched = fault.touches(target)
        free_s = max(busy_until_s.get(thing, 0.0) for thing in touched) + 0.3
        at_s = round(max(rng.uniform(0.5, FAULTS_OVER_S), free_s), 2)
        busy_until_s |= dict.fromkeys(touched, at_s + for_s)
        faults.append(PlannedFault(kind, target, at_s, for_s, rng.getrandbits(32)))
    return sorted(faults, key=lambda fault: fault.at_s)
