"""What a picture file may be: PNG, JPEG, WebP, AVIF or SVG by its content, not by its name; small, of a known size.

The type is what browsers are told, and they are told not to guess. So a file that is also a page or a script is shown
as a picture or not at all.
"""

import hashlib
import re
import struct
import xml.etree.ElementTree as ET
from typing import NamedTuple

PICTURE_MAX_BYTES = 256 * 1024
SIDE_MAX = 8_192
EXTENSIONS = {
    "image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/avif": "avif", "image/svg+xml": "svg",
}  # fmt: skip
SVG_ROOT = "{http://www.w3.org/2000/svg}svg"
_frame_markers = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_length = re.compile(r"\s*(\d{1,6}(?:\.\d{1,6})?)(?:px)?\s*")


class PictureFile(NamedTuple):
    """The type of a picture, its size in pixels, and a digest of its content."""

    media_type: str
    width: int
    height: int
    digest: str

    @property
    def file(self) -> str:
        """Its name in addresses."""
        return f"{self.digest}.{EXTENSIONS[self.media_type]}"


def picture_file(content: bytes) -> PictureFile:
    """Raises `ValueError`, which says what is wrong with the file."""
    if len(content) > PICTURE_MAX_BYTES:
        raise ValueError(f"a picture has at most {PICTURE_MAX_BYTES // 1024} KiB, and this one {len(content) // 1024}")
    try:
        media_type, (width, height) = _inspect(content)
    except (struct.error, IndexError):
        raise ValueError("the file ends too early") from None
    if not (1 <= width <= SIDE_MAX and 1 <= height <= SIDE_MAX):
        raise ValueError(f"each side of a picture has 1 to {SIDE_MAX} pixels, and this one is {width} by {height}")
    return PictureFile(media_type, width, height, hashlib.blake2b(content, digest_size=12).hexdigest())


def _inspect(content: bytes) -> tuple[str, tuple[int, int]]:
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", struct.unpack(">II", content[16:24])
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg", _jpeg_size(content)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp", _webp_size(content)
    if content[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif", _avif_size(content)
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return "image/svg+xml", _svg_size(content)
    raise ValueError("not a picture: PNG, JPEG, WebP, AVIF and SVG are known")


def _jpeg_size(content: bytes) -> tuple[int, int]:
    at = 2
    while content[at] == 0xFF:
        marker, (length,) = content[at + 1], struct.unpack(">H", content[at + 2 : at + 4])
        if marker in _frame_markers:
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return width, height
        at += 2 + length
    raise ValueError("this JPEG has no size")


def _webp_size(content: bytes) -> tuple[int, int]:
    kind, data = content[12:16], content[20:30]
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[6:10])
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack("<I", data[1:5])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return int.from_bytes(data[4:7], "little") + 1, int.from_bytes(data[7:10], "little") + 1
    raise ValueError("this WebP has no size")


def _avif_size(content: bytes) -> tuple[int, int]:
    """The largest of its images: the others are tiles and previews."""
    sizes = [struct.unpack(">II", content[at.end() + 4 : at.end() + 12]) for at in re.finditer(b"ispe", content)]
    if not sizes:
        raise ValueError("this AVIF has no size")
    return max(sizes)


def _svg_size(content: bytes) -> tuple[int, int]:
    if b"<!DOCTYPE" in content.upper() or b"<!ENTITY" in content.upper():
        raise ValueError("an SVG must not declare a document type")
    try:
        root = ET.fromstring(content)  # noqa: S314 - without a document type nothing expands
    except (ET.ParseError, LookupError, ValueError) as broken:
        raise ValueError(f"not XML: {broken}") from None
    if root.tag != SVG_ROOT:
        raise ValueError("an XML file, but not an SVG")
    sides = [_length.fullmatch(root.get(side, "")) for side in ("width", "height")]
    if all(sides):
        width, height = (float(side[1]) for side in sides if side)
    else:
        box = re.split(r"[\s,]+", root.get("viewBox", "").strip())
        try:
            width, height = float(box[2]), float(box[3])
        except (ValueError, IndexError):
            raise ValueError("an SVG needs width and height in pixels, or a viewBox") from None
    if not (0 < width < SIDE_MAX * 100 and 0 < height < SIDE_MAX * 100):
        raise ValueError("an SVG needs a size")
    return max(1, round(width)), max(1, round(height))
