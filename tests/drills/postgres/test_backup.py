"""Everything is lost but a backup: it is restored into an empty directory, and the sale goes on from there."""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.drills.crowd import PatientFan
from tests.support.engines.engines import fast_place
from tests.support.running.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until

ROOM = {"rate_per_s": 1000, "burst": 3, "max_active": 3}
WAITING = 20


async def onsale(*words: str, **environ: str) -> str:
    """As a person types it; what it said."""
    command = [sys.executable, "-P", "-m", "onsale", *words]
    ran = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-2, env={**os.environ, **environ})
    said, _ = await ran.communicate()
    assert ran.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.drill
@pytest.mark.parametrize("onto", ["its own Valkey", "a cluster"])
async def test_all_is_lost_but_a_backup(
    suite: RunningSuite, recovery: Callable[..., None], tmp_path: Path, onto: str, request: pytest.FixtureRequest
) -> None:
    """An order page, a ticket, a place in the line and a hold, all from before, are good after."""
    environ = {"ONSALE_REDIS_URL": request.getfixturevalue("cluster").url} if onto == "a cluster" else {}
    event_id = await suite.open_event(room=ROOM)
    async with suite.browser() as browser:
        buyer = await PatientFan(browser, event_id).come_in()
        order = (await buyer.order(await buyer.hold(seats=["A-1-1"]))).json()
        assert (await buyer.ending(order))["status"] == "confirmed"
        code = await _ticket(browser, order)
        holder = await PatientFan(browser, event_id).come_in()
        held = await holder.hold(seats=["A-1-2"])
        fans = [Fan(browser, event_id) for _ in range(WAITING)]
        for fan in fans:
            await fan.join()
        await onsale("backup", str(tmp_path / "kept"), "--data-dir", str(suite.data_dir))
        lost = Fan(browser, event_id)
        await lost.join()
    [kept] = await asyncio.to_thread(lambda: list((tmp_path / "kept").iterdir()))

    with tempfile.TemporaryDirectory(prefix="onsale-restored-", dir=fast_place()) as folder:
        new, lost_s = RunningSuite(Path(folder) / "data", **environ), time.monotonic()
        said = await onsale("restore", str(kept), "--data-dir", str(new.data_dir), "--quiet", **environ)
        loaded_s = time.monotonic()
        shutil.copy(suite.data_dir / "sandbox.jsonl", new.data_dir)  # the provider's books are not ours, and not lost
        try:
            await asyncio.to_thread(lambda: new.start().wait_until_ready())
            async with new.browser() as browser:
                for fan in (buyer, holder, lost, *fans):
                    fan.browser = browser
                assert (await holder.buy(held))["status"] == "confirmed", "a hold of before is paid after"
                what = "everything lost but a backup" + (", restored onto a cluster" if environ else "")
                recovery(what, time.monotonic() - lost_s, promise="–", lost="what came after it")
                print(said, f"loaded after {loaded_s - lost_s:.1f} s")  # noqa: T201
                await _is_as_before(browser, buyer, order, code, tmp_path)
                await _goes_on(browser, fans, lost)
            await wait_until(lambda: new.is_clean(event_id), timeout_s=20, interval_s=0.3)
        finally:
            assert new.stop() == 0, new.log_text()


async def _is_as_before(browser: Any, buyer: Fan, order: dict[str, Any], code: str, place: Path) -> None:
    assert (await buyer.ending(order))["status"] == "confirmed", "the order page still shows"
    assert await _ticket(browser, order) == code, "and has the same ticket"
    keys = place / "keys.json"
    keys.write_bytes((await browser.get("/.well-known/ticket-keys.json")).content)
    assert "good" in await onsale("tickets", "verify", code, "--keys", str(keys))


async def _goes_on(browser: Any, waiting: list[Fan], lost: Fan) -> None:
    numbers = [(await fan.status())["join_seq"] for fan in waiting]
    assert numbers == [fan.join_seq for fan in waiting], "a place is a place"
    late = Fan(browser, waiting[0].event_id)
    await late.join()
    assert late.join_seq == lost.join_seq == max(numbers) + 1, "whoever joined after the backup is not in it"
    again = await browser.post(f"{lost.path}/queue", headers=bearer(lost.token))
    assert (again.status_code, again.json()["join_seq"]) == (201, late.join_seq + 1), "and joins anew"
    await waiting[0].wait_for_the_call()
    await waiting[0].claim()
    bought = await waiting[0].buy(await waiting[0].hold(ga=[{"section_id": "GA1", "quantity": 1}]))
    assert bought["status"] == "confirmed"


async def _ticket(browser: Any, order: dict[str, Any]) -> str:
    mine = bearer(order["order_token"])
    [ticket] = (await browser.get(f"/orders/{order['reference']}/tickets", headers=mine)).json()["tickets"]
    return str(ticket["code"])
