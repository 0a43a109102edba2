"""What forward-auth decides about a request, by the credential it carries."""

import time

import pytest

from shared.contracts.queue import PlacesQuestion
from tests.gateway.tokens import signed_pass


@pytest.mark.parametrize("proxy", ["nginx", "traefik", "caddy", "envoy"])
async def test_a_pass_is_admitted_from_the_header_and_from_the_cookie(fan, queue, proxy):
    queue.open()
    check = f"/gate/{proxy}/check?event=show"
    by_bearer = await fan.get(check, headers={"authorization": f"Bearer {signed_pass()}"})
    by_cookie = await fan.get(check, headers={"cookie": f"onsale_pass_show={signed_pass()}"})
    for answer in (by_bearer, by_cookie):
        assert (answer.status_code, answer.headers["x-onsale-holder"]) == (200, "holder")
        assert answer.headers["cache-control"] == "no-store"


async def test_every_other_credential_is_refused(fan, queue, publish_frame):
    check = "/gate/nginx/check?event=show"
    queue.open()
    assert (await fan.get(check)).status_code == 401
    for text, status in (
        (signed_pass(event_id="other"), 403),
        (signed_pass(expires_at_s=int(time.time()) - 60), 401),
        (signed_pass(keys="another"), 401),
        ("nonsense", 401),
    ):
        answer = await fan.get(check, headers={"authorization": f"Bearer {text}"})
        assert answer.status_code == status
        assert "x-onsale-holder" not in answer.headers
    assert (await fan.get("/gate/apache/check?event=show")).status_code == 422
    await publish_frame(queue.open(epoch=2, version=2).frame())
    before_reset = await fan.get(check, headers={"authorization": f"Bearer {signed_pass()}"})
    assert before_reset.status_code == 401
    assert queue.received(PlacesQuestion) == []
