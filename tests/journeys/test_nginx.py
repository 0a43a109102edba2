"""The generated nginx configuration is valid, is the one in `deploy/`, and carries the journey."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from onsale.loopback import free_port
from onsale.nginx import nginx_conf
from shared.routes import SERVICES
from tests.support.suite import Fan, RunningSuite, bearer, no_cookies
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
needs_nginx = pytest.mark.skipif(not Path(NGINX).exists(), reason="nginx is not installed")


def test_the_configuration_in_deploy_is_the_generated_one() -> None:
    assert (ROOT / "deploy" / "nginx.conf").read_text() == nginx_conf()


def private(folder: Path, conf: str) -> list[str]:
    """nginx as an ordinary user would run it: nothing outside its own folder."""
    places = [f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
    (folder / "nginx.conf").write_text(conf.replace("http {", "http {\n    " + "\n    ".join(places), 1))
    return [NGINX, "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf", "-g", f"pid {folder}/pid; daemon off;"]


@needs_nginx
def test_nginx_accepts_it(tmp_path: Path) -> None:
    tested = subprocess.run([*private(tmp_path, nginx_conf()), "-t"], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr


@pytest.fixture
def balanced(suite: RunningSuite, tmp_path: Path) -> Iterator[str]:
    """A balancer in front of the suite; here every service answers on the suite's one port."""
    port = free_port()
    upstreams = dict.fromkeys(SERVICES, f"127.0.0.1:{suite.port}")
    process = subprocess.Popen(private(tmp_path, nginx_conf(upstreams, listen=f"127.0.0.1:{port}")))
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(timeout=10)


@needs_nginx
async def test_nginx_carries_the_journey(suite: RunningSuite, balanced: str) -> None:
    event_id = await suite.open_event()
    async with httpx.AsyncClient(base_url=balanced, timeout=20, cookies=no_cookies()) as browser:

        async def answers() -> bool:
            try:
                return (await browser.get(f"/events/{event_id}/queue")).status_code == 200
            except httpx.TransportError:
                return False

        await wait_until(answers)
        fan = await Fan(browser, event_id).come_in()
        assert (await fan.buy(await fan.hold(seats=["A-1-1"])))["status"] == "confirmed"
        async with browser.stream("GET", f"{fan.path}/sections/updates", headers=bearer(fan.token)) as stream:
            first = await anext(stream.aiter_lines())
        assert first
        for path in ("/internal/joins", "/metrics", "/queue/metrics"):
            assert (await browser.get(path)).status_code == 404
