"""The admin API for support: search and timeline."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.orders.inventory import EVENT
from tests.orders.shop import OPERATOR, VIEWER, Shop
from tests.support.wait import wait_until


async def search(shop: Shop, **params: Any) -> list[str]:
    return [order["reference"] for order in (await shop.admin_get(**params))["orders"]]


async def timeline(shop: Shop, reference: str) -> list[dict[str, Any]]:
    return list((await shop.admin_get(f"/{reference}/timeline"))["timeline"])


async def test_orders_are_found_by_reference_email_name_seat_charge_event_status_and_time(shop: Shop) -> None:
    mine = await shop.bought("A-1-1", name="Ada Lovelace", email="ada@example.org")
    other = await shop.bought("A-1-2", name="100% Bob_", email="bob@example.org")
    charge = (await shop.charges(mine))[0]["id"]
    for q in (mine, "ADA@example.org", "lovelace", "A-1-1", charge):
        assert await search(shop, q=q) == [mine], q
    assert await search(shop, q="0% b") == [other]
    assert await search(shop, q="_%") == await search(shop, q="' OR 1=1 --") == await search(shop, q="A-1-") == []
    assert await search(shop, event_id=EVENT, status="confirmed") == [other, mine]
    assert await search(shop, status="review") == await search(shop, event_id="another") == []
    now = datetime.now(UTC)
    assert await search(shop, since=(now - timedelta(hours=1)).isoformat()) == [other, mine]
    assert await search(shop, until=(now - timedelta(hours=1)).isoformat()) == []


async def test_the_search_returns_bounded_pages_with_a_cursor(shop: Shop) -> None:
    bought_orders = [await shop.bought(f"A-1-{n}") for n in range(1, 4)]
    first = await shop.admin_get(page_size=2, event_id=EVENT)
    assert [order["reference"] for order in first["orders"]] == bought_orders[:0:-1]
    assert first["next"] == f"/admin/orders?event_id={EVENT}&before={bought_orders[1]}&page_size=2"
    oldest = await shop.admin_get(q=bought_orders[0])
    second = (await shop.http.get(first["next"], headers=OPERATOR)).json()
    assert second == {"orders": oldest["orders"][:1], "next": None}
    assert (await shop.admin_get(page_size=3))["next"] is None, "no empty page is offered"
    for bad in ({"page_size": 201}, {"q": "x"}, {"q": "a\x00b"}, {"before": "'"}, {"since": "2027-01-01T00:00:00"}):
        assert (await shop.http.get("/admin/orders", params=bad, headers=OPERATOR)).status_code == 422, bad


async def test_a_timeline_lists_everything_about_an_order_by_time(shop: Shop) -> None:
    reference = await shop.bought()
    await wait_until(lambda: received_webhook(shop, reference))
    await shop.admin_post(f"{reference}/refund", amount_minor=800, key="k")
    await shop.wait_for_status(reference, "partially_refunded")
    rows = await timeline(shop, reference)
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert {row["kind"] for row in rows} == {"order", "command", "attempt", "money", "webhook", "desk", "refund"}
    assert [row["kind"] for row in rows if row["kind"] in ("desk", "refund")] == ["desk", "refund"]
    assert [row["amount_minor"] for row in rows if row["kind"] == "money"] == [6800, 800]
    assert (await shop.http.get("/admin/orders/ZZZZZZZZZZZZ/timeline", headers=OPERATOR)).status_code == 404
    assert (await shop.http.get(f"/admin/orders/{reference}/timeline")).status_code == 401


async def received_webhook(shop: Shop, reference: str) -> bool:
    return any(row["kind"] == "webhook" for row in await timeline(shop, reference))


async def test_only_operators_read_the_names_and_addresses_of_buyers(shop: Shop) -> None:
    reference = await shop.order()
    for path in ("", f"/export.csv?event_id={EVENT}", f"/{reference}/timeline"):
        assert (await shop.http.get(f"/admin/orders{path}", headers=VIEWER)).status_code == 403, path
        assert (await shop.http.get(f"/admin/orders{path}", headers=OPERATOR)).status_code == 200, path
