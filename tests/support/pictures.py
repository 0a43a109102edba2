"""Small pictures of every type, and files that are pictures and something else."""

import io
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from onsale import event_files

WIDE = (40, 30)


def picture(kind: str, size: tuple[int, int] = WIDE, colour: str = "#0b5d52") -> bytes:
    """A picture of one colour, as `PNG`, `JPEG`, `WEBP` or `AVIF`."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


PNG, JPEG, WEBP, AVIF = (picture(kind) for kind in ("PNG", "JPEG", "WEBP", "AVIF"))
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 30"><path fill="#0b5d52" d="M0 0h40v30H0z"/></svg>'
LIVELY_SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30" onload="top.broken = 1">'
    b"<script>top.broken = 1</script></svg>"
)
PAGE = b"<!doctype html><script>top.broken = 1</script>"
BRAND = {"name": "Polar", "logo": "logo.svg", "accent": "#0b5d52", "picture": {"file": "hall.png", "alt": "The hall"}}


def write_event(folder: Path, event_id: str, brand: dict[str, Any] | None = None, *, logo: bytes = SVG) -> Path:
    """An event file with its pictures beside it."""
    event = {
        "event_id": event_id, "name": "A show", "venue": "A hall", "currency": "EUR",
        "starts_at": "2030-01-01T20:00:00Z", "brand": brand or BRAND,
        "sections": [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}],
    }  # fmt: skip
    for name, content in {"logo.svg": logo, "hall.png": PNG}.items():
        (folder / name).write_bytes(content)
    path = folder / "event.yaml"
    path.write_text(yaml.safe_dump(event))
    return path


def pictures_of(path: Path) -> dict[str, bytes]:
    return event_files.pictures(path, event_files.read(path))
