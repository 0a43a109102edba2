"""A shop that knows nothing of Onsale, and nginx in front of it with the configuration of docs/use/forward-auth.md."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from onsale.local.ports import free_port
from shared.http.http1 import HttpClient, HttpResponse
from tests.support.programs import need
from tests.support.running.serving import serving
from tests.support.running.suite import no_cookies
from tests.support.wait import wait_until

HOST = "127.0.0.2"  # not the waiting room's host: cookies of a host are sent to all its ports
GUIDE = Path(__file__).parents[3] / "docs" / "use" / "forward-auth.md"
PAGE = {"accept": "text/html,application/xhtml+xml", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
SCRIPT = {"accept": "application/json", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]


async def _answer(request: Request) -> PlainTextResponse:
    holder = request.headers.get("x-onsale-holder", "")
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return PlainTextResponse(f"the shop: {request.method} {path} for [{holder}]")


def shop() -> Starlette:
    return Starlette(routes=[Route("/{path:path}", _answer, methods=METHODS)])


def snippet(language: str) -> str:
    """The first example in this language of the guide."""
    example = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.S)
    assert example, f"the guide has no {language}"
    return example[1]


def _conf(folder: Path, port: int, gateway: int, origin: int, event_id: str) -> list[str]:
    server = snippet("nginx").replace("127.0.0.1:8101", f"127.0.0.1:{gateway}").replace("arena-2026", event_id)
    server = server.replace("127.0.0.1:9000", f"127.0.0.1:{origin}").replace("listen 8080;", f"listen {HOST}:{port};")
    temp_paths = "".join(
        f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    log = f"log_format short '$request $status'; access_log {folder}/access.log short;"
    (folder / "nginx.conf").write_text(f"events {{}}\nhttp {{ {temp_paths} {log}\n{server}\n}}\n")
    return [
        need("nginx"),
        "-e",
        f"{folder}/error.log",
        "-c",
        f"{folder}/nginx.conf",
        "-g",
        f"pid {folder}/pid; daemon off;",
    ]


@asynccontextmanager
async def guarded_shop(folder: Path, gateway: int, event_id: str) -> AsyncIterator[str]:
    """The URL of a shop behind nginx, which asks the forward-auth of this event about each request."""
    port = free_port()
    async with serving(shop()) as origin:
        process = await asyncio.create_subprocess_exec(*_conf(folder, port, gateway, origin, event_id))
        try:
            async with browser() as visitor:

                async def answers() -> bool:
                    try:
                        return bool((await visitor.get(f"http://{HOST}:{port}/")).status_code)
                    except httpx.TransportError:
                        return False

                await wait_until(answers, timeout_s=20)
            yield f"http://{HOST}:{port}"
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), 10)


def browser(*, cookies: bool = True, **headers: Any) -> httpx.AsyncClient:
    """Keeps cookies per host unless `cookies` is false, and follows no redirect."""
    jar = None if cookies else no_cookies()
    return httpx.AsyncClient(timeout=20, cookies=jar, headers={**PAGE, **headers}, trust_env=False)


ALLOWED_PATHS = ("/up", "/assets/site.css", "/assets/deep/logo.svg?v=3")
TRICKY_PATHS = (  # not what the rules allow, however they are spelled
    "/upper", "/up/", "/assets/../pay", "/assets/%2e%2e/pay", "/assets//x", "/assets/..;/pay", "/assets",
)  # fmt: skip


async def get_as_written(site: str, path: str, headers: Mapping[str, str] = PAGE) -> HttpResponse:
    """Asks for this path byte for byte; httpx would resolve `..` before it sends."""
    async with HttpClient() as http:
        return await http.request("GET", site + path, headers=headers, timeout=20)
