"""One fan's pass under many made-up signatures, behind both balancers, does not evade the limits per fan."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from shared.runtime.settings import development_keys
from shared.security.tokens import Pass, b64, sign_pass
from shared.web.app import public
from tests.support.running.balancers import Kind, balancing, in_front_of, parameters
from tests.support.running.serving import serving

VARIANTS = 300
NO_SITE = {"return_to": "https://nowhere.example/", "gate": "A" * 24}


@pytest.mark.parametrize("kind", parameters())
async def test_a_pass_with_made_up_signatures_is_one_fan_at_most(app, queue, state, tmp_path: Path, kind: Kind):
    queue.open()
    now_s = int(time.time())
    mine = Pass(
        event_id="show",
        holder="holder",
        jti="1-0-1-1",
        epoch=1,
        lane=0,
        join_seq=1,
        qty_max=6,
        issued_at_s=now_s,
        expires_at_s=now_s + 600,
    )
    token = sign_pass(development_keys("pass"), mine, seal=development_keys("service"))
    signed = token.rpartition(".")[0]
    async with serving(public(app)) as port:
        with balancing(kind, in_front_of(port), tmp_path) as address:
            limits = httpx.Limits(max_connections=20)
            async with httpx.AsyncClient(base_url=address, limits=limits, timeout=30) as fan:

                async def status_of(text: str) -> int:
                    headers = {"authorization": f"Bearer {text}"}
                    return (await fan.post("/events/show/queue/handover", json=NO_SITE, headers=headers)).status_code

                assert await status_of(token) == 422, "it came in"
                statuses: Counter[int] = Counter()
                for _ in range(VARIANTS // 100):
                    made_up = (f"{signed}.{b64(os.urandom(64))}" for _ in range(100))
                    statuses.update(await asyncio.gather(*map(status_of, made_up)))
    assert statuses[401] > VARIANTS * 0.9, "refused, unless the balancer was busy"
    assert not statuses[422], "none came in"
    assert len(state.forward_auth.passes._cache) == 1
