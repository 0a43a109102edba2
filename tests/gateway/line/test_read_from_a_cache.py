"""A crowd reads the public line from a cache in front: nginx, HAProxy or Varnish asks a gateway once a second."""

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from onsale.local.ports import HOST, free_port
from shared.web.app import public
from tests.gateway.frames import new_frame
from tests.gateway.tokens import queue_token
from tests.support.programs import need, needs
from tests.support.running.balancers import balancer_parameters, plan_for_ports, running_balancer
from tests.support.running.program import Program
from tests.support.running.serving import serving
from tests.support.running.suite import bearer
from tests.support.wait import until

PATH, READS, FANS, READS_FOR_S = "/events/show/queue", 1_000, 20, 1.2
VCL = Path(__file__).parents[3] / "deploy/varnish.vcl"


@contextmanager
def running_varnish(port: int, folder: Path) -> Iterator[str]:
    """Varnish with the file in deploy/ in front of this port, inside this context."""
    listens = free_port()
    own = VCL.read_text().replace('.port = "8080"', f'.port = "{port}"')
    (folder / "own.vcl").write_text(own)
    varnish = Program(
        [need("varnishd"), "-F", "-j", "none", "-a", f"{HOST}:{listens}", "-f", f"{folder}/own.vcl", "-s", "malloc,8m",
         "-n", f"{folder}/varnish"], folder / "varnish.log",
    )  # fmt: skip
    varnish.start()

    def ready() -> bool:
        assert varnish.is_running, varnish.log_text()
        with socket.create_connection((HOST, listens)):
            return True

    try:
        until(ready, what="varnish")
        yield f"http://{HOST}:{listens}"
    finally:
        varnish.end(signal.SIGTERM)


@pytest.mark.parametrize("kind", [*balancer_parameters(), pytest.param("varnish", marks=needs("varnishd"))])
async def test_a_thousand_reads_of_the_public_line_reach_a_gateway_once_a_second(
    kind, app, queue, publish_frame, tmp_path
):
    await queue.open()
    await publish_frame(new_frame(head=100, tail=90_000))
    reached, inner = Counter[str](), public(app)

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        reached[scope["method"] + " " + scope["path"]] += 1
        await inner(scope, receive, send)

    async with serving(counted) as port:
        cache = running_varnish(port, tmp_path) if kind == "varnish" else running_balancer(
            kind, plan_for_ports(port), tmp_path
        )  # fmt: skip
        with cache as address:
            async with httpx.AsyncClient(base_url=address, timeout=30) as client:

                async def read(fan: int) -> None:
                    for n in range(READS // FANS):
                        answer = await client.get(f"{PATH}?{fan}-{n}", headers=bearer(queue_token(join_seq=500 + fan)))
                        assert (answer.status_code, answer.json()["head_seq"]) == (200, 100)
                        await asyncio.sleep(READS_FOR_S * FANS / READS)

                began_s = monotonic()
                await asyncio.gather(*map(read, range(FANS)))
                took_s = monotonic() - began_s
                etag = (await client.get(PATH)).headers["etag"]
                assert (await client.get(PATH, headers={"if-none-match": etag})).status_code == 304
                positions = [
                    (await client.get(f"{PATH}/status", headers=bearer(queue_token(join_seq=seq)))).json()
                    for seq in (500, 600)
                ]  # fmt: skip
                joined = await client.post(PATH, headers={"origin": address})
    at_once = FANS if kind == "haproxy" else 2  # it does not let the others wait for the first one's answer
    assert 2 <= reached[f"GET {PATH}"] <= at_once * (took_s + 2), reached
    assert [place.get("position_in_queue", place) for place in positions] == [400, 500], (
        "what is a fan's own is never kept"
    )
    assert reached[f"POST {PATH}"] == 1, joined.text
