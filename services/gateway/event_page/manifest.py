"""An event as an icon on the home screen of a phone: the web app manifest of its page."""

from typing import Any

import orjson

from services.gateway.event_page.facts import event_path
from shared.contracts.catalogue import EventDetails, ShownPicture
from shared.web.pages.built_files import Asset

ICON_MIN_PX = 144  # smaller ones make a page not installable
PAPER = "#f6f5f1"
SIZES = (192, 512)


def app_icons(logo: ShownPicture | None, ours: dict[int, Asset]) -> list[dict[str, str]]:
    """The logo if a home screen can show it, else ours."""
    if logo and logo.url.endswith(".svg"):
        return [{"src": logo.url, "sizes": "any", "type": "image/svg+xml"}]
    if logo and logo.width == logo.height >= ICON_MIN_PX:
        return [{"src": logo.url, "sizes": f"{logo.width}x{logo.height}"}]
    return [{"src": f"/static/{ours[px].name}", "sizes": f"{px}x{px}", "type": "image/png"} for px in SIZES]


def manifest(event: EventDetails, language: str, ours: dict[int, Asset]) -> bytes:
    """The manifest: its page opens without the browser's frame, in the colours of the brand."""
    brand, path = event.brand, event_path(event.event_id)
    paper = (brand and brand.background) or PAPER
    found: dict[str, Any] = {
        "id": path, "name": event.name, "short_name": event.name[:30], "description": event.venue, "lang": language,
        "start_url": path, "scope": "/", "display": "standalone", "theme_color": paper, "background_color": paper,
        "icons": app_icons(brand.logo if brand else None, ours),
    }  # fmt: skip
    return orjson.dumps(found)
