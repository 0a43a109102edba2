"""The statements whose plans are kept have the same plan at every size at which it may be made.

Two indexes can seem equally good while a table is small, and a kept plan would go on with the wrong one (0089).
"""

import re

import asyncpg
import pytest

from onsale.local.engines import Engines, with_driver
from proof.plans import inventory_cases
from proof.plans.conftest import load
from proof.plans.statements import statements
from shared.postgres.engine import PLANNER
from tests.support.engines.engines import in_database, sql

SIZES = (0, 100, 150, 200, 250, 300, 500, 1_000, 3_000, 15_000)
SCAN = re.compile(r"(\w+ (?:Only )?Scan)(?: Backward)?(?: using (\w+))? on (?:inventory\.)?(\w+)")
KEPT = PLANNER | {"plan_cache_mode": "force_generic_plan"}


@pytest.mark.parametrize("name", ["sql/begin", "sql/confirm"])
async def test_a_kept_plan_looks_up_whole_keys_at_every_size(engines: Engines, migrated: str, name: str) -> None:
    scans = {}
    for size in SIZES:
        database = f"kept_{size}_{name[4:]}"
        await sql(engines, f"create database {database} template {migrated}")
        try:
            if size:
                await load(in_database(engines, database), size)
            plan = await _explain(in_database(engines, database), name)
        finally:
            await sql(engines, f"drop database {database} with (force)")
        assert not re.search("Hash Join|Merge Join|Seq Scan|Bitmap", plan), f"{size}: {plan}"
        scans[size] = sorted(SCAN.findall(plan))
    assert all(of_size == scans[0] for of_size in scans.values()), scans


async def _explain(url: str, name: str) -> str:
    connection = await asyncpg.connect(with_driver(url), server_settings=KEPT)
    try:
        args = inventory_cases.CASES[name].args
        return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statements('inventory')[name]}", *args))
    finally:
        await connection.close()
