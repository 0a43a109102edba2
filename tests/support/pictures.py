"""Small pictures of every type, and files that are pictures and something else."""

import io

from PIL import Image

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
