"""All is lost, and the sale continues: from a backup in an empty data directory; or, if the disk of PostgreSQL is
lost, from a base backup and the archive of its write-ahead log.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from onsale.client import Fan
from onsale.client.fan_documents import OrderAccepted
from onsale.local.binaries import find_postgres
from onsale.local.ports import HOST
from onsale.local.postgres import USER
from proof.drills.postgres_pair import Postgres
from proof.drills.sale import Recorder
from tests.support.engines.engines import fast_directory
from tests.support.running.suite import RunningSuite, bearer, client_of, fan_of
from tests.support.wait import wait_until

ROOM = {"rate_per_s": 1000, "burst": 3, "max_active": 3}
WAITING = 20


async def onsale(*arguments: str, **environ: str) -> str:
    """Runs `onsale …` in a process; its output."""
    command = [sys.executable, "-P", "-m", "onsale", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-2, env={**os.environ, **environ})
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.parametrize("redis_kind", ["its own Valkey", "a cluster"])
async def test_a_sale_continues_from_a_restored_backup(
    suite: RunningSuite, recovery: Callable[..., None], tmp_path: Path, redis_kind: str, request: pytest.FixtureRequest
) -> None:
    """An order, a ticket, a place in the line and a hold from before the backup are valid after the restore."""
    environ = {"ONSALE_REDIS_URL": request.getfixturevalue("cluster").url} if redis_kind == "a cluster" else {}
    event_id = await suite.open_event(room=ROOM)
    async with suite.browser() as browser:
        buyer = await fan_of(browser, event_id).come_in()
        order = await buyer.order(await buyer.hold({"seats": ["A-1-1"]}))
        assert (await buyer.settled(order))["status"] == "confirmed"
        code = await _ticket(browser, order)
        holder = await fan_of(browser, event_id).come_in()
        held = await holder.hold({"seats": ["A-1-2"]})
        fans = [fan_of(browser, event_id) for _ in range(WAITING)]
        for fan in fans:
            await fan.join()
        await onsale("backup", str(tmp_path / "kept"), "--data-dir", str(suite.data_dir))
        joined_after_backup = fan_of(browser, event_id)
        await joined_after_backup.join()
    [backup] = await asyncio.to_thread(lambda: list((tmp_path / "kept").iterdir()))

    with tempfile.TemporaryDirectory(prefix="onsale-restored-", dir=fast_directory()) as folder:
        restored, lost_s = RunningSuite(Path(folder) / "data", **environ), time.monotonic()
        output = await onsale("restore", str(backup), "--data-dir", str(restored.data_dir), "--quiet", **environ)
        loaded_s = time.monotonic()
        shutil.copy(suite.data_dir / "sandbox.jsonl", restored.data_dir)  # the provider's charges, which are not lost
        try:
            await asyncio.to_thread(restored.start().wait_until_ready)
            async with restored.browser() as browser:
                for fan in (buyer, holder, joined_after_backup, *fans):
                    fan.client = client_of(browser)
                assert (await holder.buy(held))["status"] == "confirmed", "a hold from the backup can be bought"
                what = "everything lost but a backup" + (", restored onto a cluster" if environ else "")
                recovery(what, time.monotonic() - lost_s, promise="–", lost="what came after it")
                print(output, f"loaded after {loaded_s - lost_s:.1f} s")
                await _check_order_and_ticket(browser, buyer, order, code, tmp_path)
                await _check_line_continues(browser, fans, joined_after_backup)
            await wait_until(lambda: restored.is_clean(event_id), timeout_s=20, interval_s=0.3)
        finally:
            assert restored.stop() == 0, restored.log_text()


async def _check_order_and_ticket(browser: Any, buyer: Fan, order: OrderAccepted, code: str, folder: Path) -> None:
    assert (await buyer.settled(order))["status"] == "confirmed", "the order is unchanged"
    assert await _ticket(browser, order) == code, "its ticket is the same"
    keys = folder / "keys.json"
    keys.write_bytes((await browser.get("/.well-known/ticket-keys.json")).content)
    assert "good" in await onsale("tickets", "verify", code, "--keys", str(keys))


async def _check_line_continues(browser: Any, waiting: list[Fan], joined_after_backup: Fan) -> None:
    numbers = [(await fan.status())["join_seq"] for fan in waiting]
    assert numbers == [fan.join_seq for fan in waiting], "places keep their numbers"
    late = fan_of(browser, waiting[0].event_id)
    await late.join()
    assert late.join_seq == joined_after_backup.join_seq == max(numbers) + 1, "the backup does not have a later place"
    again = await browser.post(f"/events/{late.event_id}/queue", headers=bearer(joined_after_backup.queue_token))
    assert (again.status_code, again.json()["join_seq"]) == (201, late.join_seq + 1), "its fan joins again"
    await waiting[0].wait()
    await waiting[0].claim()
    bought = await waiting[0].buy(await waiting[0].hold({"ga": [{"section_id": "GA1", "quantity": 1}]}))
    assert bought["status"] == "confirmed"


async def _ticket(browser: Any, order: OrderAccepted) -> str:
    owner = bearer(order["order_token"])
    [ticket] = (await browser.get(f"/orders/{order['reference']}/tickets", headers=owner)).json()["tickets"]
    return str(ticket["code"])


CONFIGURATION = Path(__file__).parents[3] / "deploy" / "postgres"


async def has_replayed(server: Postgres) -> bool:
    """Whether it answers and has replayed the archive."""
    try:
        [row] = await server.query("SELECT pg_is_in_recovery() AS recovering", database="postgres")
    except (OSError, asyncpg.PostgresError):
        return False
    return not row["recovering"]


async def test_a_base_backup_and_the_archive_recover_a_lost_disk(recovery: Recorder) -> None:
    with tempfile.TemporaryDirectory(prefix="onsale-archive-", dir=fast_directory()) as directory:
        folder, binaries = Path(directory), find_postgres(os.environ, major=None)
        wal = folder / "archive" / "wal"
        await asyncio.to_thread(wal.mkdir, parents=True)
        for file in CONFIGURATION.glob("*.conf"):  # as compose runs it, with `/archive` in the folder
            (folder / file.name).write_text(file.read_text().replace("/archive", str(folder / "archive")))
        configured = {"config_file": f"{folder}/onsale.conf"}
        first = await Postgres(folder / "data", binaries, **configured).create()
        backup = ["-D", f"{folder}/base", "-c", "fast", "-X", "none", "-h", HOST, "-p", str(first.port), "-U", USER]
        await asyncio.to_thread(first.run, "pg_basebackup", *backup)
        await first.query("CREATE TABLE sold AS SELECT n FROM generate_series(1, 1000) n", database="postgres")
        [switched] = await first.query("SELECT pg_walfile_name(pg_switch_wal()) AS file", database="postgres")
        await wait_until(lambda: (wal / switched["file"]).exists(), timeout_s=30)
        first.end(signal.SIGKILL)
        shutil.rmtree(first.home)

        lost_s = time.monotonic()
        (folder / "base" / "recovery.signal").touch()
        second = Postgres(folder / "base", binaries, restore_command=f"cp {wal}/%f %p", **configured)
        second.start()
        try:
            await wait_until(lambda: has_replayed(second), timeout_s=30)
            recovery("the ledger's disk lost, base backup and archive replayed", time.monotonic() - lost_s,
                     promise="–", lost="at most the last minute, as set")  # fmt: skip
            [row] = await second.query("SELECT count(*) AS kept FROM sold", database="postgres")
            assert row["kept"] == 1000
        finally:
            second.end(signal.SIGINT)
