"""Many forged signatures of one pass, sent through nginx and HAProxy, do not evade the limits for one fan."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from shared.security.tokens import b64, development_keys, sign_pass
from shared.web.app import public
from tests.gateway.tokens import an_admission
from tests.support.running.serving import serving
from tests.support.running.suite import Kind, balancer_parameters, plan_for_ports, running_balancer

VARIANTS = 100
UNKNOWN_SITE = {"return_to": "https://nowhere.example/", "gate": "A" * 24}


@pytest.mark.parametrize("kind", balancer_parameters())
async def test_forged_signatures_of_a_pass_are_refused_and_take_one_cache_entry(
    app, queue, forward_auth, tmp_path: Path, kind: Kind
):
    await queue.open()
    admission = an_admission(expires_at_s=int(time.time()) + 600)
    token = sign_pass(development_keys("pass"), admission, seal=development_keys("service"))
    signed_part = token.rpartition(".")[0]
    async with serving(public(app)) as port:
        with running_balancer(kind, plan_for_ports(port), tmp_path) as address:
            limits = httpx.Limits(max_connections=20)
            async with httpx.AsyncClient(base_url=address, limits=limits, timeout=30) as fan:

                async def status_of(text: str) -> int:
                    headers = {"authorization": f"Bearer {text}"}
                    answer = await fan.post("/events/show/queue/handover", json=UNKNOWN_SITE, headers=headers)
                    return answer.status_code

                assert await status_of(token) == 422, "the valid pass is accepted, and the site is refused"
                statuses: Counter[int] = Counter()
                for _ in range(VARIANTS // 100):
                    forged = (f"{signed_part}.{b64(os.urandom(64))}" for _ in range(100))
                    statuses.update(await asyncio.gather(*map(status_of, forged)))
    assert statuses[401] > VARIANTS * 0.9, "the balancer itself may refuse some"
    assert not statuses[422], "none is accepted"
    assert len(forward_auth.passes._cache) == 1
