"""The `type` of every problem is the address of its description, as HTML and as JSON."""

import json

import httpx
import pytest

from services.gateway.app import create_app
from services.gateway.documents import PAGES
from shared.web.app import public
from tools.problem_catalogue import catalogue


@pytest.fixture
def gateway() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(public(create_app())), base_url="http://gateway")


def test_the_problem_catalogue_matches_the_code() -> None:
    assert json.loads((PAGES / "problems.json").read_text()) == catalogue(), "make api-documents"


async def test_every_problem_has_an_html_page_and_a_json_document(gateway: httpx.AsyncClient) -> None:
    listed = (await gateway.get("/problems")).json()["problems"]
    assert len(listed) >= 80
    page = (await gateway.get("/problems", headers={"accept": "text/html"})).text
    for entry in listed:
        path = f"/problems/{entry['slug']}"
        assert f'href="{path}"' in page
        document = (await gateway.get(path)).json()
        assert (document["type"], document["title"], document["status"]) == (path, entry["title"], entry["status"])
        assert document["advice"]
        assert "What to do" in (await gateway.get(path, headers={"accept": "text/html,*/*"})).text


async def test_the_type_of_a_problem_response_is_the_address_of_its_page(gateway: httpx.AsyncClient) -> None:
    refused = await gateway.get("/problems/nothing-like-this")
    assert refused.status_code == 404
    assert (await gateway.get(refused.json()["type"])).json()["title"] == refused.json()["title"]
