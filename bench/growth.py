"""P9: what one operation costs when everything around it is ten times as much."""

from bench.measurement import Effort, Figures, Finding
from bench.stage import Stage


def growth() -> Finding:
    """The finding, not yet made."""
    return Finding(key="P9", title="cost growth", settings=[], find=find)


async def find(stage: Stage, effort: Effort) -> Figures:
    """Soon."""
    return Figures(("a",), [("b",)], [])
