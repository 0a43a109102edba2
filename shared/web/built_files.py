"""Pages that `web/build.mjs` built: files whose names change with their content, and a manifest of their digests.

A file is compressed when it is first asked for, as small as it gets, and kept in memory: all of them are under 2 MB.
"""

import asyncio
import gzip
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import brotli

from shared.errors.problems import NotFound
from shared.security.tokens import HeaderFields
from shared.web.answers import Answer, encodings, fields_of

IMMUTABLE = "public, max-age=31536000, immutable"
MEDIA_TYPES = {
    ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2", ".png": "image/png",
    ".ts": "application/typescript", ".txt": "text/plain", ".json": "application/json", ".html": "text/html",
}  # fmt: skip
COMPRESSED_ALREADY = (".png", ".woff2")
FILES_KEPT_MAX = 512  # three forms of each built file, and more
_name, _hash = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"), re.compile(r"-[A-Z0-9]{8}(?=\.)")


class Asset(NamedTuple):
    """A built file, and its digest as `integrity` of an element."""

    name: str
    integrity: str


@cache
def assets(folder: Path) -> Mapping[str, Asset]:
    """The built files by the name of their source, such as `event.js`; none without a build."""
    manifest = folder / "manifest.json"
    built = json.loads(manifest.read_text()) if manifest.is_file() else {}
    return {_hash.sub("", name): Asset(name, one["sha384"]) for name, one in built.items()}


async def built_file(fields: HeaderFields, folder: Path, name: str, headers: Mapping[str, str]) -> Answer:
    """A file of the folder, compressed where the client takes it. Raises `NotFound`."""
    path = folder / name
    media_type = MEDIA_TYPES.get(path.suffix)
    if not _name.fullmatch(name) or media_type is None or not path.is_file():
        raise NotFound
    charset = "; charset=utf-8" if media_type.startswith("text/") else ""
    sent = {**headers, "content-type": media_type + charset, "vary": "accept-encoding"}
    accepted = set[bytes]() if path.suffix in COMPRESSED_ALREADY else encodings(fields)
    encoding = next((each for each in ("br", "gzip") if each.encode() in accepted), "")
    if encoding:
        sent["content-encoding"] = encoding
    content = await asyncio.to_thread(_content, path, path.stat().st_mtime_ns, encoding)
    return Answer(200, content, fields_of(sent))


@lru_cache(maxsize=FILES_KEPT_MAX)
def _content(path: Path, changed_ns: int, encoding: str) -> bytes:
    content = path.read_bytes()
    if encoding == "br":
        return bytes(brotli.compress(content, mode=brotli.MODE_TEXT, quality=11))
    return gzip.compress(content, 9, mtime=0) if encoding == "gzip" else content
