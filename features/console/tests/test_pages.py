"""Every screen is one document; assets are immutable, and compressed for who can read that."""

import gzip
from pathlib import Path

import brotli
import httpx
import pytest

from features.console import api
from features.console.tests.conftest import Console

SCRIPT = "say('the same once more');\n" * 100
POLICY = (
    "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; "
    "require-trusted-types-for 'script'"
)


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(api, "PAGES", tmp_path)
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "app-1a2b.js").write_text(SCRIPT)
    (tmp_path / "licenses.txt").write_text("MIT")
    (tmp_path.parent / "secret.txt").write_text("no")
    return tmp_path


async def test_every_screen_is_the_same_document(console: Console, pages: Path) -> None:
    async with console.client(None) as client:
        for path in ("/console", "/console/", "/console/events/arena", "/console/wall/arena"):
            answer = await client.get(path)
            assert (answer.status_code, answer.text) == (200, "<!doctype html>"), path
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["cache-control"] == "no-cache"
            assert (await client.head(path)).status_code == 200
        for path in ("/console/events/", "/console/wall/a%20b", "/console/other", "/console/events/arena/more"):
            assert (await client.get(path)).status_code == 404, path


async def test_assets_are_compressed_for_who_can_read_that(console: Console, pages: Path) -> None:
    async with console.client(None) as client:
        for accepted, encoding, unpacked in (
            ("br, gzip", "br", brotli.decompress), ("gzip", "gzip", gzip.decompress), ("identity", None, bytes),
            ("", None, bytes),
        ):  # fmt: skip
            request = client.build_request("GET", "/console/assets/app-1a2b.js", headers={"accept-encoding": accepted})
            response = await client.send(request, stream=True)
            body = b"".join([chunk async for chunk in response.aiter_raw()])
            await response.aclose()
            assert (unpacked(body).decode(), response.headers.get("content-encoding")) == (SCRIPT, encoding)
            assert encoding is None or len(body) < len(SCRIPT) / 10
            assert response.headers["content-type"].startswith("text/javascript")
            assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert "accept-encoding" in response.headers["vary"].lower()
        assert (await client.get("/console/assets/licenses.txt")).text == "MIT"


async def test_nothing_outside_the_folder_is_sent(console: Console, pages: Path) -> None:
    async with console.client(None) as client:
        for name in ("..%2Fsecret.txt", "../secret.txt", "nothing.js", ".hidden.txt", "%00.js"):
            assert (await client.get(f"/console/assets/{name}")).status_code == 404, name


async def test_without_pages_the_rest_works(console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PAGES", tmp_path)
    async with console.client() as client:
        assert (await client.get("/console/")).status_code == 404
        assert (await client.get("/console/api/events")).status_code == 200
        assert isinstance(await client.get("/console/session"), httpx.Response)
