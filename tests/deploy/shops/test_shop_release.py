"""nginx in front of a shop frees a slot when the shop has thanked a buyer, not when somebody opens a link."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from onsale.local.ports import free_port
from tests.support.programs import need, needs
from tests.support.running.serving import serving
from tests.support.wait import wait_until

pytestmark = needs("nginx")
CONF = Path(__file__).parents[3] / "deploy" / "shops" / "pretix" / "nginx.conf"
ORDER, OTHERS = "/box/arena/order/ABC12/s3cret4567/", "/box/arena/order/NOPE1/s3cret4567/"
FAN = {"cookie": "a=b; __Host-onsale_pass_arena=the.fans.pass"}
FROM_THE_SHOP = {"sec-fetch-site": "same-origin"}


class Site:
    """The shop and the gateway behind nginx; `released` has the Authorization of each release."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.released: list[tuple[str, str, str]] = []

    async def shop(self, request: Request) -> Response:
        known = request.url.path.startswith(ORDER)
        return PlainTextResponse("an order" if known else "no order", self.status if known else 404)

    async def release(self, request: Request) -> Response:
        body = (await request.body()).decode()
        self.released.append((request.url.query, request.headers["authorization"], body))
        return PlainTextResponse("released", 500)  # nothing of this answer reaches the fan

    def gateway(self) -> Starlette:
        return Starlette(routes=[Route("/gate/release", self.release, methods=["POST"])])

    def pretix(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.shop, methods=["GET", "HEAD", "POST"])])

    async def open(self, address: str, **headers: str) -> httpx.Response:
        """Opens this page, and returns when nginx has done all it does after it."""
        fields = FAN | {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(trust_env=False, headers=fields) as client:
            answer = await client.get(f"{self.url}{address}")
            await client.get(f"{self.url}/healthcheck/")  # on the same connection, so after it
            return answer


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    found, port = Site(), free_port()
    (tmp_path / "shop" / "tmp").mkdir(parents=True)
    async with serving(found.gateway()) as gateway, serving(found.pretix()) as shop:
        conf = CONF.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{gateway}")
        conf = conf.replace("127.0.0.1:8345", f"127.0.0.1:{shop}").replace("127.0.0.2:8080", f"127.0.0.2:{port}")
        (tmp_path / "nginx.conf").write_text(re.sub("worker_processes auto", "worker_processes 1", conf))
        command = [need("nginx"), "-p", str(tmp_path), "-e", "shop/error", "-c", "nginx.conf", "-g", "daemon off;"]
        process = await asyncio.create_subprocess_exec(*command)
        found.url = f"http://127.0.0.2:{port}"
        try:
            await wait_until(lambda: answers(found))
            yield found
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), 10)
    assert "alert" not in (tmp_path / "shop" / "nginx-error.log").read_text()


async def answers(site: Site) -> bool:
    try:
        await site.open("/healthcheck/")
    except httpx.TransportError:
        return False
    return True


@pytest.mark.parametrize("came", [FROM_THE_SHOP, {}])
async def test_the_page_that_thanks_for_an_order_frees_the_slot_once(site: Site, came: dict[str, str]) -> None:
    answer = await site.open(f"{ORDER}?thanks=yes", **came)
    assert (answer.status_code, answer.text) == (200, "an order")
    assert site.released == [("event=arena", "Bearer the.fans.pass", "")]


@pytest.mark.parametrize(
    ("address", "status", "came"),
    [
        (f"{OTHERS}?thanks=yes", 404, FROM_THE_SHOP),
        (f"{OTHERS}?thanks=yes", 404, {}),
        (f"{ORDER}?thanks=yes", 500, FROM_THE_SHOP),
        (f"{ORDER}?thanks=yes", 302, FROM_THE_SHOP),
        (f"{ORDER}?thanks=yes", 403, {}),
        (f"{ORDER}?thanks=yes", 200, {"sec-fetch-site": "cross-site"}),
        (f"{ORDER}?thanks=yes", 200, {"sec-fetch-site": "same-site"}),
        (f"{ORDER}?thanks=yes", 200, {"sec-fetch-site": "none"}),
        (ORDER, 200, FROM_THE_SHOP),
        (f"{ORDER}?thanks=no", 200, FROM_THE_SHOP),
    ],
)
async def test_a_link_alone_ends_nothing(site: Site, address: str, status: int, came: dict[str, str]) -> None:
    site.status = status
    assert (await site.open(address, **came)).status_code == status
    assert site.released == []


async def test_nobody_without_a_pass_releases_one(site: Site) -> None:
    await site.open(f"{ORDER}?thanks=yes", cookie="a=b", **FROM_THE_SHOP)
    assert (site.released, (await site.open("/@onsale_release")).status_code) == ([], 503), "the gate is away here"
