"""A rendered page that many read."""

import gzip
import hashlib
from collections.abc import Mapping

from fastapi import Request
from starlette.responses import Response

from shared.web.pages.built_files import accepted_encodings


class Document:
    """A rendered page: encoded, compressed and named by an ETag once, however many read it."""

    def __init__(self, text: str, headers: Mapping[str, str]) -> None:
        self._plain = text.encode()
        self._gzipped = gzip.compress(self._plain, 6, mtime=0)
        etag = f'"{hashlib.blake2b(self._plain, digest_size=12).hexdigest()}"'
        vary = ", ".join(filter(None, ("accept-encoding", headers.get("vary"))))
        self._headers = {**headers, "etag": etag, "vary": vary}

    def response(self, request: Request) -> Response:
        """The page, or that it has not changed."""
        if self._headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=self._headers)
        if "gzip" not in accepted_encodings(request):
            return Response(self._plain, headers=self._headers, media_type="text/html")
        headers = {**self._headers, "content-encoding": "gzip"}
        return Response(self._gzipped, headers=headers, media_type="text/html")
