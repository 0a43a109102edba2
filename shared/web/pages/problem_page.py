"""A problem as an HTML page, for people who followed a link: the cause, what to do, and an automatic retry.

The page needs no other file, so that a balancer can show it while nothing else answers; retries are spread out.
"""

import base64
import hashlib
from collections.abc import Iterable
from html import escape

from shared.web.problems import Problem

MEDIA_TYPE = "text/html; charset=utf-8"
STYLE = (
    ":root{color-scheme:light dark}body{margin:0;min-height:100vh;display:grid;place-items:center;background:#f6f5f1;"
    "color:#1a1b22;font:1.0625rem/1.5 system-ui,sans-serif}main{max-width:32rem;padding:1.5rem;overflow-wrap:anywhere}"
    "h1{font:600 2rem/1.15 Georgia,serif;margin:0}a{color:#4240b8}:focus-visible{outline:3px solid;outline-offset:3px}"
    "p{margin:.8rem 0 0}@media(prefers-color-scheme:dark){"
    "body{background:#111218;color:#eeeef3}a{color:#a9a8ff}}"
)
SCRIPT = (
    "const s=Number(document.documentElement.dataset.retry);"
    "if(s)setTimeout(()=>location.reload(),1000*(s+Math.random()*(s+9)))"
)
AGAIN = "This page tries again by itself. You do not need to do anything."
TO_DO = {
    401: "Open it in the browser you used before, or with the link in our e-mail.",
    403: "Open it in the browser you used before, or with the link in our e-mail.",
    404: "Check the address, or start from the list of events.",
    410: "Start again from the list of events.",
    422: "Check the address, or start from the list of events.",
}
HEADINGS = {
    404: "Page not found", 429: "One moment, please", 500: "Something went wrong",
    502: "One moment, please", 503: "One moment, please", 504: "One moment, please",
}  # fmt: skip


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; style-src {_source(STYLE)}; script-src {_source(SCRIPT)}; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)


def wanted(method: str, accepts: Iterable[bytes]) -> bool:
    """Whether a browser asks for a page, not a program for data."""
    return method in ("GET", "HEAD") and any(b"text/html" in accept for accept in accepts)


def page(problem: Problem) -> str:
    """The HTML, without single quotes and dollar signs, so that a balancer's configuration can contain it."""
    retry_s = problem.retry_after_s or 0
    heading = HEADINGS.get(problem.code, problem.title().rstrip("."))
    to_do = AGAIN if retry_s else TO_DO.get(problem.code, "Go back, or start from the list of events.")
    by_itself = f'<noscript><meta http-equiv="refresh" content="{retry_s + 5}"></noscript>' if retry_s else ""
    detail = escape(str(problem)).replace("$", "&#36;").replace("\\", "&#92;")
    view = '<meta name="viewport" content="width=device-width,initial-scale=1">'
    return (
        f'<!doctype html><html lang="en" data-retry="{retry_s}"><head><meta charset="utf-8">'
        f"{view}<title>{escape(heading)}</title>{by_itself}"
        f"<style>{STYLE}</style></head><body><main><h1>{escape(heading)}</h1><p>{detail}</p><p>{to_do}</p>"
        f'<p><a href="/">All events</a></p></main><script>{SCRIPT}</script></body></html>'
    )


def headers(problem: Problem) -> dict[str, str]:
    """The headers besides the content type."""
    return {**problem.headers(), "content-security-policy": POLICY, "vary": "accept"}
