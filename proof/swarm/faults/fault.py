"""A fault: one thing that goes wrong with one target, from `begin` to `end`. A table knows every kind by its name.

`end` leaves everything as it was before: what heals afterwards heals by itself.
"""

import random
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from proof.swarm.site import Site


class Link(NamedTuple):
    """The connections of all processes of one service to a database, a service's internal listener or the provider."""

    caller: str
    callee: str

    def __str__(self) -> str:
        return f"{self.caller} to {self.callee}"

    @classmethod
    def parse(cls, text: str) -> "Link":
        return cls(*text.split(" to "))


class Fault:
    """One fault of a trial. `what` says in plain words what is done; faults with the same `touches` never overlap."""

    shortest_s: ClassVar[float] = 0.5
    longest_s: ClassVar[float] = 5.0
    needs: ClassVar[str] = ""  # something of this machine, by its name in `machine.py`

    def __init__(self, target: str, seed: int) -> None:
        self.target, self.rng = target, random.Random(seed)

    @classmethod
    def targets(cls, programs: Collection[str]) -> list[str]:
        """What it can be done to, in a fleet of these processes."""
        raise NotImplementedError

    @classmethod
    def what(cls, target: str) -> str:
        raise NotImplementedError

    @classmethod
    def touches(cls, target: str) -> tuple[str, ...]:
        return (target,)

    @classmethod
    def link(cls, target: str) -> Link | None:
        """The connections that a proxy must carry from the beginning, if any."""
        return None

    @classmethod
    def clock(cls, target: str) -> str | None:
        """The program whose clock must be adjustable, if any."""
        return None

    async def begin(self, site: "Site") -> None:
        raise NotImplementedError

    async def end(self, site: "Site") -> None:
        """Nothing by default: what was done is over."""


def service_of(program: str) -> str:
    return program.partition("-")[0]


def table(*modules: Any) -> dict[str, type[Fault]]:
    """Every fault of these modules by the name of its class."""
    found = {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Fault) and value.__module__ == module.__name__
    }
    return {name: fault for name, fault in found.items() if not name.startswith("_")}
