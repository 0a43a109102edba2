"""Pools: general-admission places of a section that only some fans may buy, which the stock counts as a section of
their own. Fans, orders and tickets know the section alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

POOL = "~"  # stands in a pool's id, and begins that of a price type


def pool_id(section_id: str, name: str) -> str:
    """How the places of a section that have this name are counted."""
    return f"{section_id}{POOL}{name}"


def section_of(counted_as: str) -> str:
    """The section of places by what they are counted as: it, or one of its pools."""
    return counted_as.partition(POOL)[0]


def apart(rows: Iterable[Mapping[Any, Any]]) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """The rows of sections, each with the capacity of its pools, too; and the ids of the pools by section."""
    all_rows, capacity, pools = list(rows), dict[str, int](), dict[str, list[str]]()
    for row in all_rows:
        section_id = section_of(row["section_id"])
        capacity[section_id] = capacity.get(section_id, 0) + row["capacity"]
        if section_id and section_id != row["section_id"]:
            pools.setdefault(section_id, []).append(row["section_id"])
    sections = [{**row, "capacity": capacity[s]} for row in all_rows if (s := row["section_id"]) == section_of(s)]
    return sections, pools
