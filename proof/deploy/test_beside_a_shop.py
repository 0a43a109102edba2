"""The steps of docs/use/beside-a-shop.md, run as written: 2,000 fans at a pretix that nobody here wrote."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson
import pytest
import yaml
from playwright.async_api import async_playwright

from onsale.local.binaries import find_postgres
from proof.deploy.beside_a_shop import PAGE, Figures, save
from tests.gateway.tokens import signed_pass
from tests.support.programs import DOCS, Ports, block, find_program, needs, shell
from tests.support.providers import pretix
from tests.support.providers.shop import PAGE as PAGE_HEADERS
from tests.support.providers.shop import SCRIPT, browser, get_as_written
from tests.support.providers.shop_crowd import ShopCrowd
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
EVENT = "/box/arena/"
OPEN = re.compile(r"/(control|api|healthcheck)/|/box/arena/(theme\.css|order/)")
LOG_LINE = re.compile(r'\[(\S+) [^]]*\] (\d+) "\w+ (\S+) [^"]*" \[([^]]*)\]')
FANS, SELLS_FOR_S, BOUGHT_LEAST = 2_000, 75, 10


class Stand(NamedTuple):
    """The shop behind its gate, as the guide puts it up."""

    folder: Path
    url: str
    ports: Ports
    environ: dict[str, str]

    def run(self, title: str) -> str:
        """The output of a section's block."""
        return self._output("bash", "-c", f"set -eu\n{self.ports.replace(block(PAGE, title))}")

    def onsale(self, *arguments: str) -> None:
        self._output("onsale", *arguments)

    def _output(self, *command: str) -> str:
        path = self.environ["PATH"]
        done = subprocess.run(
            [shutil.which(command[0], path=path) or command[0], *command[1:]],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    await asyncio.to_thread(pretix.install, block(PAGE, "A pretix to try with"), ROOT / "deploy", tmp_path)
    ports = Ports()
    ports.replace_in(*(tmp_path / "deploy/shops/pretix" / name for name in ("pretix.cfg", "nginx.conf", "event.yaml")))
    if os.geteuid() == 0:  # its workers would be another user, who may not read this folder
        nginx = tmp_path / "deploy/shops/pretix/nginx.conf"
        nginx.write_text(f"user root;\n{nginx.read_text()}")
    path = [
        Path(sys.executable).parent,
        find_postgres(os.environ, major=None).directory,
        "/usr/sbin",
        os.environ["PATH"],
    ]
    environ = {"PATH": ":".join(map(str, path)), "HOME": str(tmp_path)}
    titles = ("The shop runs", "The waiting room runs", "The gate stands before the shop")
    script = ports.replace("\n".join(block(PAGE, title) for title in titles))
    url = ports.replace("http://127.0.0.2:8080")
    with shell(script, tmp_path, **environ) as log_path:

        async def answers() -> bool:
            assert "Traceback" not in log_path.read_text(), log_path.read_text()
            try:
                async with browser() as visitor:
                    page = await visitor.get(url + EVENT)
                    shop = await visitor.get(f"{url}/control/login")
                    return "return_to=" in page.headers.get("location", "") and shop.status_code == 200
            except httpx.HTTPError:
                return False

        await wait_until(answers, timeout_s=120, interval_s=0.5)
        yield Stand(tmp_path, url, ports, environ)


@pytest.mark.timeout(1200)  # the first time it installs pretix
@needs("nginx")
async def test_two_thousand_fans_come_to_a_shop_that_bears_twenty(stand: Stand) -> None:
    assert stand.run("See it work").split()[:4] == [
        "303",
        '"type":"/problems/no-credential"',
        "200",
        "200",
    ]
    await _nobody_passes_without_a_pass(stand)

    async def shopping(visitor: httpx.AsyncClient, name: str) -> bool:
        if crowd.enough.is_set():
            return False
        assert "Your order has been placed" in await pretix.buy(visitor, stand.url + EVENT, f"{name}@example.org")
        return True

    crowd = ShopCrowd(stand.url, EVENT, shopping)
    began_s = time.monotonic()
    await crowd.come(FANS, arrive_over_s=20, within_s=SELLS_FOR_S)
    seconds = round(time.monotonic() - began_s)
    stand.run("Change the pace while it runs")

    seen, saw = crowd.observations, _shop_saw(stand.folder)
    event = yaml.safe_load((stand.folder / "deploy/shops/pretix/event.yaml").read_text())
    figures = Figures(
        date=datetime.now(UTC).strftime("%Y-%m-%d"), shop=_version(stand.folder), fans=FANS, seconds=seconds,
        called=seen.called, reached=crowd.reached_shop, overtaken=seen.inversions, bought=crowd.bought,
        holders_at_once=saw.holders_at_once, max_active=event["room"]["max_active"],
        requests_to_the_shop=saw.requests, requests_without_a_pass=len(saw.without_a_pass),
    )  # fmt: skip
    assert crowd.wrong == []
    assert crowd.first_answers == {303: FANS}, "everybody is sent to the waiting room first"
    assert seen.joined == FANS
    assert (seen.inversions, seen.duplicate_numbers) == (0, 0), "first come, first called"
    assert seen.called == crowd.reached_shop == saw.holders, "whoever is called reaches the shop, and nobody else"
    assert saw.without_a_pass == []
    assert saw.holders_at_once <= figures.max_active, "its own log shows no more fans at once than it bears"
    assert crowd.bought >= BOUGHT_LEAST
    assert pretix.orders_in(stand.folder) == crowd.bought
    assert crowd.reused_passes == {303: crowd.bought}, "after the purchase the pass opens nothing"
    assert seen.called > figures.max_active, "slots of fans who bought were given to others"
    if os.environ.get("ONSALE_RECORD"):
        save(figures)


@pytest.mark.timeout(1200)
@needs("nginx", "chromium")
async def test_a_browser_waits_is_sent_back_and_buys(stand: Stand) -> None:
    """The fan page and the shop's own scripts, in Chromium: nothing of either is refused on the way to an order."""
    stand.onsale("room", "set", "arena", "--rate", "0")
    refused: list[str] = []
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=find_program("chromium"), args=["--no-sandbox"])
        page = await chromium.new_page(viewport={"width": 390, "height": 700}, locale="en-GB")
        page.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
        page.on("pageerror", lambda error: refused.append(str(error)))
        await page.goto(stand.url + EVENT)
        await page.get_by_role("button", name="Join the line").click()
        await page.get_by_text("You are in line").wait_for()
        await _picture(page, "waiting")
        stand.onsale("room", "set", "arena", "--rate", "5")
        await page.wait_for_url(f"{stand.url}{EVENT}", timeout=60_000)
        await _picture(page, "admitted")
        await page.get_by_role("button", name="Add to cart").click()
        await page.get_by_role("button", name="Proceed with checkout").click()
        await page.locator("input[name=email]").fill("fan@example.org")
        for step in ("questions", "payment"):
            await page.wait_for_url(f"**/checkout/{step}/**")
            await page.get_by_role("button", name="Continue").click()
        await page.get_by_role("button", name="Place binding order").click()
        await page.wait_for_url("**/order/**?thanks=yes")
        await page.get_by_text("Your order has been placed").wait_for()
        await chromium.close()
    assert refused == []
    assert pretix.orders_in(stand.folder) == 1


async def _picture(page: Any, name: str) -> None:
    if os.environ.get("ONSALE_RECORD"):
        await page.wait_for_load_state("networkidle")
        await page.screenshot(path=DOCS / "images" / f"beside-a-shop-{name}.png")


async def _nobody_passes_without_a_pass(stand: Stand) -> None:
    """Pages lead to the room and calls get problems, however the shop's address is spelt and whatever pass is shown."""
    cart = f"w/{'A' * 16}/"
    for path in (
        EVENT, "/BOX/Arena/", f"{EVENT}checkout/start", f"{EVENT}{cart}", f"{EVENT}order/AB1CD/abc/{cart}",
        f"{EVENT}order/AB1CD/abc/download/{cart}", f"{EVENT}order/AB1CD/abc{cart}", f"/static/..{EVENT}",
        "/box/../box/arena/", "//box/arena/", "/%62ox/arena/", f"/control/%2e%2e{EVENT}",
    ):  # fmt: skip
        for headers in (PAGE_HEADERS, SCRIPT, {"cookie": f"onsale_pass_arena={signed_pass(event_id='arena')}"}):
            refused = await get_as_written(stand.url, path, headers)
            assert refused.status_code == (303 if headers is PAGE_HEADERS else 401), (path, refused.status_code)
            if headers is not PAGE_HEADERS:
                assert refused.headers["content-type"] == "application/problem+json"
                assert orjson.loads(refused.content)["waiting_room"].endswith("/e/arena")
    # nginx reads this as the back office, pretix would read it as a cart
    back_office = await get_as_written(stand.url, f"{EVENT}{cart}cart/add{'/..' * 6}/control/")
    assert back_office.headers["location"].endswith("/control/login?next=/control/")
    open_page = await get_as_written(stand.url, "/control/login", {"x-onsale-holder": "me"})
    assert open_page.status_code == 200
    assert [line for line in _log(stand.folder) if line.holder or not OPEN.match(line.path)] == []


class _Line(NamedTuple):
    """A request in the shop's access log: second, path, and the holder that the gate named (empty without a pass)."""

    at_s: float
    path: str
    holder: str


def _log(folder: Path) -> list[_Line]:
    found = LOG_LINE.findall((folder / "shop/access.log").read_text())
    assert found
    return [
        _Line(datetime.strptime(at, "%d/%b/%Y:%H:%M:%S").timestamp(), path, "" if holder == "-" else holder)  # noqa: DTZ007
        for at, _, path, holder in found
    ]


class _ShopSaw(NamedTuple):
    requests: int
    holders: int
    holders_at_once: int
    without_a_pass: list[_Line]


def _shop_saw(folder: Path) -> _ShopSaw:
    """What the access log of the shop says. A holder is in the shop from the first request to the last; of a second in
    which one leaves and another comes, the first is not counted.
    """
    log = _log(folder)
    stays: dict[str, tuple[float, float]] = {}
    for line in log:
        if line.holder:
            first, last = stays.get(line.holder, (line.at_s, line.at_s))
            stays[line.holder] = (min(first, line.at_s), max(last, line.at_s))
    at_once = max(
        (
            sum(first <= moment < last or first == last == moment for first, last in stays.values())
            for moment, _ in stays.values()
        ),
        default=0,
    )
    without = [line for line in log if not line.holder and not OPEN.match(line.path)]
    return _ShopSaw(len(log), len(stays), at_once, without)


def _version(folder: Path) -> str:
    lock = (folder / "deploy/shops/pretix/requirements.lock").read_text()
    [version] = re.findall(r"^pretix==([\w.]+)", lock, re.M)
    return f"pretix {version} (one process, SQLite)"
