"""A problem as an HTML page, for people who followed a link: the cause, what to do, and an automatic retry.

A service answers it in the reader's language. The page needs no other file, so that a balancer can show it while
nothing else answers; a balancer's page has every language, and its script leaves the reader's. Retries are spread out.
"""

import base64
import hashlib
from collections.abc import Iterable
from html import escape

from shared.errors.problems import Problem
from shared.words.words import DEFAULT_LANGUAGE, LANGUAGES, Words, words

MEDIA_TYPE = "text/html; charset=utf-8"
STYLE = (
    ":root{color-scheme:light dark}body{margin:0;min-height:100vh;display:grid;place-items:center;background:#f6f5f1;"
    "color:#1a1b22;font:1.0625rem/1.5 system-ui,sans-serif}main{max-width:32rem;padding:1.5rem;overflow-wrap:anywhere}"
    "h1{font:600 2rem/1.15 Georgia,serif;margin:0}a{color:#4240b8}:focus-visible{outline:3px solid;outline-offset:3px}"
    "p{margin:.8rem 0 0}section+section{margin-top:3rem}@media(prefers-color-scheme:dark){"
    "body{background:#111218;color:#eeeef3}a{color:#a9a8ff}}"
)
SCRIPT = (
    "const d=document,h=d.documentElement,s=Number(h.dataset.retry),l=[...d.querySelectorAll(`section`)];"
    "if(s)setTimeout(()=>location.reload(),1000*(s+Math.random()*(s+9)));"
    "if(l[1]){const w=[...d.cookie.split(`onsale_lang=`).slice(1),...navigator.languages].map(t=>t.slice(0,2)),"
    "m=l.find(p=>p.lang==w.find(t=>l.some(q=>q.lang==t)))||l[0];"
    "l.forEach(p=>p.hidden=p!=m);h.lang=m.lang;h.dir=m.dir;d.title=m.firstChild.textContent}"
)
HEADINGS = {
    404: "page_not_found", 429: "page_one_moment", 500: "page_wrong", 502: "page_one_moment", 503: "page_one_moment",
    504: "page_one_moment",
}  # fmt: skip
TO_DO = {
    401: "page_open_where", 403: "page_open_where", 404: "page_check_address", 410: "page_start_again",
    422: "page_check_address",
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


def page(problem: Problem, language: str | None = None) -> str:
    """The HTML in one language, or in every one, English first; without single quotes, backslashes and dollar signs, so
    that a balancer's configuration can contain it.
    """
    others = (each for each in LANGUAGES if each != DEFAULT_LANGUAGE)
    texts = [words(each) for each in ([language] if language else [DEFAULT_LANGUAGE, *others])]
    retry_s = problem.retry_after_s or 0
    by_itself = f'<noscript><meta http-equiv="refresh" content="{retry_s + 5}"></noscript>' if retry_s else ""
    view = '<meta name="viewport" content="width=device-width,initial-scale=1">'
    first = texts[0]
    parts = "".join(_part(problem, text) for text in texts)
    return (
        f'<!doctype html><html lang="{first.language}" dir="{first.direction}" data-retry="{retry_s}"><head>'
        f'<meta charset="utf-8">{view}<title>{escape(_heading(problem, first))}</title>{by_itself}'
        f"<style>{STYLE}</style></head><body><main>{parts}</main><script>{SCRIPT}</script></body></html>"
    )


def _part(problem: Problem, text: Words) -> str:
    to_do = text("page_again" if problem.retry_after_s else TO_DO.get(problem.code, "page_go_back"))
    paragraphs = "".join(f"<p>{_escaped(line)}</p>" for line in (_sentence(problem, text), to_do) if line)
    return (
        f'<section lang="{text.language}" dir="{text.direction}"><h1>{_escaped(_heading(problem, text))}</h1>'
        f'{paragraphs}<p><a href="/">{text("all_events")}</a></p></section>'
    )


def _heading(problem: Problem, text: Words) -> str:
    if problem.code in HEADINGS:
        return text(HEADINGS[problem.code])
    return problem.title().rstrip(".") if text.language == DEFAULT_LANGUAGE else text("page_not_possible")


def _sentence(problem: Problem, text: Words) -> str:
    """In English what the server says; in another language the text of this problem, if a fan can meet it."""
    if text.language == DEFAULT_LANGUAGE:
        return str(problem)
    key = f"problem_{problem.slug.replace('-', '_')}"
    return text(key) if key in text else ""


def _escaped(text: str) -> str:
    return escape(text).replace("$", "&#36;").replace("\\", "&#92;")


def headers(problem: Problem) -> dict[str, str]:
    """The headers besides the content type."""
    return {**problem.headers(), "content-security-policy": POLICY, "vary": "accept, accept-language, cookie"}
