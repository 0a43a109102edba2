"""A pretix to test with, from its own package, and a fan who buys in it through its pages.

Installing it and making its tables takes minutes, so both are done once and kept in the user's cache, by the steps of
the guide that are kept with them.
"""

import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import httpx

SHOP_ANSWERS_WITHIN_S = 60.0
STEPS_MAX = 6
INSTALLED_FROM = ("requirements.lock", "pretix.cfg", "event.py")
INSTALLED_WITHIN_S = 900  # minutes on an idle machine


def install(steps: str, deploy: Path, folder: Path) -> None:
    """Runs the guide's steps that install pretix, or copies what they once made, into `folder/shop`."""
    inputs = [steps.encode(), *((deploy / "shops" / "pretix" / name).read_bytes() for name in INSTALLED_FROM)]
    digest = hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onsale" / f"pretix-{digest}"
    if not (kept / "complete").exists():
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        shutil.copytree(deploy, kept / "deploy")
        done = subprocess.run(
            ["bash", "-c", f"set -eu\n{steps}"],
            cwd=kept,
            capture_output=True,
            text=True,
            timeout=INSTALLED_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        (kept / "complete").touch()
    shop = folder / "shop"
    shop.mkdir()
    (shop / "tmp").mkdir()
    shutil.copytree(kept / "shop" / "data", shop / "data")
    (shop / "venv").symlink_to(kept / "shop" / "venv")


def orders_in(folder: Path) -> int:
    """How many orders the shop's own database holds."""
    with sqlite3.connect(f"file:{folder}/shop/data/db.sqlite3?mode=ro", uri=True) as database:
        [count] = database.execute("SELECT count(*) FROM pretixbase_order").fetchone()
    return int(count)


class _Forms(HTMLParser):
    """The forms of a page: where they are sent, and what a fan who only gives an address sends."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        field = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append((field.get("action", ""), {}))
        elif tag == "input" and self.forms and field.get("name"):
            chosen = field.get("type") not in ("radio", "checkbox") or "checked" in field or "required" in field
            if chosen:
                self.forms[-1][1][field["name"]] = field.get("value", "")


async def buy(visitor: httpx.AsyncClient, page: str, email: str) -> str:
    """Buys one ticket by the shop's own pages: into the cart, address, payment by bank transfer, order; the page that
    thanks for it.
    """
    [cart] = [form for form in _forms(await _get(visitor, page)) if "/cart/add?" in form[0]]
    [item] = [name for name in cart[1] if name.startswith("item_")]
    await _send(visitor, page, cart[0], cart[1] | {item: "1"})
    answer = await _get(visitor, str(httpx.URL(page).join("checkout/start")))
    for _ in range(STEPS_MAX):
        if "/order/" in answer.url.path:
            assert answer.url.params.get("thanks") == "yes", answer.url
            return answer.text
        _, fields = [form for form in _forms(answer) if form[0] == "" and "csrfmiddlewaretoken" in form[1]][-1]
        answer = await _send(visitor, str(answer.url), "", fields | ({"email": email} if "email" in fields else {}))
    title = re.search(r"<title>([^<]*)", answer.text)
    raise AssertionError(f"the checkout does not end: {title and title[1].strip()}")


def _forms(answer: httpx.Response) -> list[tuple[str, dict[str, str]]]:
    return _Forms(answer.text).forms


async def _get(visitor: httpx.AsyncClient, url: str) -> httpx.Response:
    answer = await visitor.get(url, follow_redirects=True, timeout=SHOP_ANSWERS_WITHIN_S)
    assert answer.status_code == 200, f"{answer.status_code} {url}"
    return answer


async def _send(visitor: httpx.AsyncClient, page: str, action: str, fields: dict[str, str]) -> httpx.Response:
    target = httpx.URL(page).join(action) if action else httpx.URL(page)
    answer = await visitor.post(target, data=fields, follow_redirects=True, timeout=SHOP_ANSWERS_WITHIN_S)
    assert answer.status_code == 200, f"{answer.status_code} {target}"
    return answer
