"""The web page: static files that use the REST API, served by the same process."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

from recollect.errors import NotFound

page_router = APIRouter(include_in_schema=False)
PAGE_PREFIX = "/page/"
_INDEX = "index.html"
_FOLDER = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Browsers ask each time whether the file has changed, so that an upgrade takes effect at once.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".ts": "text/plain; charset=utf-8",
    # LICENSE
    "": "text/plain; charset=utf-8",
}
_COMPRESSED_ALREADY = frozenset([".png", ".ico", ".woff2"])
_GZIP = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q\s*=\s*(?:1(?:\.0*)?|0?\.0*[1-9]\d*))?\s*(?:,|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, also compressed if that makes it smaller, and the digest of its content."""

    media_type: str
    content: bytes
    compressed: bytes | None
    digest: str

    def response(self, request: Request) -> Response:
        """Return the file, or 304 if the client has it."""
        compressed = self.compressed if _GZIP.search(request.headers.get("accept-encoding", "")) else None
        # Each encoding has a tag of its own.
        tag = f'"{self.digest}"' if compressed is None else f'"{self.digest}-gzip"'
        headers = {**_HEADERS, "ETag": tag}
        if tag in re.findall(r'"[^"]*"', request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        if compressed is not None:
            headers["Content-Encoding"] = "gzip"
        content = self.content if compressed is None else compressed
        return Response(content, media_type=self.media_type, headers=headers)


@cache
def page_files() -> Mapping[str, PageFile]:
    return {path.relative_to(_FOLDER).as_posix(): _read_file(path) for path in _FOLDER.rglob("*") if path.is_file()}


def _read_file(path: Path) -> PageFile:
    content = path.read_bytes()
    compressed = None if path.suffix in _COMPRESSED_ALREADY else gzip.compress(content, mtime=0)
    if compressed is not None and len(compressed) >= len(content):
        compressed = None
    media_type = _MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return PageFile(media_type, content, compressed, hashlib.sha256(content).hexdigest()[:32])


@page_router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    return page_files()[_INDEX].response(request)


@page_router.api_route(f"{PAGE_PREFIX}{{path:path}}", methods=["GET", "HEAD"])
async def page_file(path: str, request: Request) -> Response:
    """Return a script, a style sheet or an image of the page."""
    file = page_files().get(path)
    if file is None:
        raise NotFound(f"The page has no file {path!r}")
    return file.response(request)
