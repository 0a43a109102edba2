"""Fan pages have a strict content security policy, and the fast routes are in the OpenAPI document."""

from services.gateway.documents import BUILT
from shared.web.pages.built_files import assets

PATH = "/events/show/queue"


async def test_fan_pages_have_a_strict_content_security_policy(fan, queue):
    await queue.open()
    for path, content_type in (
        ("/", "text/html"),
        ("/e/show", "text/html"),
        ("/o/ABCDEFGH12", "text/html"),
        (f"/static/{assets(BUILT)['styles.css'].name}", "text/css"),
        ("/favicon.ico", "image/svg+xml"),
    ):
        page = await fan.get(path)
        assert (page.status_code, page.headers["content-type"].split(";")[0]) == (200, content_type)
        policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
        assert page.headers["content-security-policy"] == policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"
        again = await fan.get(path, headers={"if-none-match": page.headers.get("etag", "none")})
        is_immutable = "immutable" in page.headers["cache-control"]
        assert is_immutable == path.startswith("/static/")
        assert again.status_code == 304 or is_immutable or path == "/favicon.ico", path
    for path in ("/static/nothing.js", "/static/../app.py", "/static/%2e%2e/%2e%2e/app.py", "/e/-bad-"):
        refused = await fan.get(path)
        assert refused.status_code in {404, 422}
        assert refused.headers["content-type"] == "application/problem+json"


async def test_fast_routes_are_in_the_openapi_document(fan):
    document = (await fan.get("/openapi.json")).json()
    assert set(document["paths"][PATH.replace("show", "{event_id}")]) == {"get", "post", "delete"}
    assert "/events/{event_id}/queue/status" in document["paths"]
    properties = document["components"]["schemas"]["PassAnswer"]["properties"]
    assert set(properties) == {"pass", "expires_at", "checkout_key", "status"}
