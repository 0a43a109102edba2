"""Cookies that look like a credential change nothing about the limit of the fan whose pass is used."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx
import pytest

from shared.security.limits import FanLimit
from tests.inventory.conftest import EVENT, Inventory, make_pass
from tests.support.running.balancers import Kind, balancer_parameters, plan_for_ports, running_balancer
from tests.support.running.serving import serving
from tests.support.running.suite import bearer

NAME, SEATS = f"onsale_pass_{EVENT}", f"/events/{EVENT}/sections/A/seats"


@pytest.mark.parametrize("kind", balancer_parameters())
async def test_a_cookie_beside_the_pass_escapes_no_limit_of_its_fan(
    inventory: Inventory, tmp_path: Path, kind: Kind
) -> None:
    low = FanLimit(per_s=0.01, burst=5, keys_max=100)
    inventory.state.authenticator = replace(inventory.state.authenticator, fan_limit=low)
    token, statuses = make_pass("fan"), list[int]()
    async with serving(cast(httpx.ASGITransport, inventory.fans._transport).app) as port:
        with running_balancer(kind, plan_for_ports(port), tmp_path) as address:
            async with httpx.AsyncClient(base_url=address, timeout=20) as fan:
                for n in range(20):
                    pair = [f"{NAME}=a.b.decoy-{n}", f"{NAME}={token}", f"onsale_queue_other=a.b.decoy-{n}"]
                    cookies = "; ".join(pair if n % 2 else pair[::-1])
                    statuses.append((await fan.get(SEATS, headers={"cookie": cookies})).status_code)
                assert (statuses.count(200), statuses.count(429)) == (5, 15)
                assert (await fan.get(SEATS, headers=bearer(token))).status_code == 429, "it is the same fan"
                assert (await fan.get(SEATS, headers=bearer(make_pass("other")))).status_code == 200
