"""Personal pages: of a fan who waits, and of fans without scripts, at each step of the way.

They are rendered for one fan, stored by nobody, and refresh by a header field where something will change by itself. A
browser counts as one without scripts once it has posted a form or followed `?scripts=off`; the page's script ends that.
"""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from prometheus_client import Counter

from features.pages.contracts import ReadOwnOrder, ShopClient
from features.pages.forms import PLAIN_COOKIE, PLAIN_COOKIE_S, typed_fields, typed_form
from features.pages.gateway.documents import (
    HEADERS,
    HTML,
    CataloguePages,
    EventPages,
    EventShell,
    Shell,
    of_language,
    rendered,
    slot,
    step_slots,
)
from features.pages.gateway.event_page import for_script
from features.pages.gateway.formats import change, estimate, moment
from features.pages.gateway.own import OwnEventParts, OwnOrderView, OwnView, TypedEmail, order_view
from services.gateway.api.queue import computed_status, may_bypass, status_from_queue, waiting_status
from services.gateway.state import State
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.errors.problems import Problem, StaleEpoch
from shared.runtime.metrics import with_series
from shared.security.limits import Buckets
from shared.security.tokens import QueueToken, cookie, cookies, order_cookie, set_cookie
from shared.web.answers import Answer, compressed, fields_of
from shared.web.request import Request, language_of
from shared.words.words import Words, words

BUSY_AGAIN_S = 5
ORDERS_MAX = 5
Status = Mapping[str, Any]
OWN_WORDS = {
    "already-extended": "extended_once", "price-changed": "plain_price_changed", "cookies-needed": "plain_cookies",
    "idempotency-key-reused": "order_unknown",
}  # fmt: skip
UNSHOWN = frozenset({"entry-delayed"})
ENTRY, ENTRY_MAX_S = re.compile(r"[\w-]+\.([0-9]{1,12})\.[\w.-]+"), 31
ADDRESS_SHARE = 0.2
PLAIN_PAGES = with_series(
    Counter(
        "gateway_plain_pages_total", "Pages for fans without scripts: rendered, or busy beyond the limit.", ["outcome"]
    ),
    outcome=("rendered", "busy"),
)


class PlainPageLimit:
    """A bucket of one second's pages, and one for each address, so that no client takes the pages of all others.
    Rendering them costs what no other call does.
    """

    def __init__(self, *, per_s: float, addresses_max: int, shared_by: int = 1) -> None:
        def buckets(per_s: float, keys_max: int) -> Buckets:
            return Buckets(per_s=per_s, burst=max(1, math.ceil(per_s)), keys_max=keys_max, shared_by=shared_by)

        self._pages, self._shares = buckets(per_s, 1), buckets(per_s * ADDRESS_SHARE, addresses_max)

    def allow(self, address: str | None) -> bool:
        """Takes one page; False if there is none, for this address or at all. Our own networks have no share."""
        now_s = time.monotonic()
        allowed = address is None or self._shares.take(address, now_s=now_s) == 0
        if allowed and self._pages.take("pages", now_s=now_s) > 0:
            allowed = False
            if address is not None:
                self._shares.give_back(address, now_s=now_s)
        PLAIN_PAGES.labels("rendered" if allowed else "busy").inc()
        return allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class FanPages:
    """What the handlers of pages need: the gateway's state, what renders for many and what renders for one."""

    gateway: State
    shop: ShopClient
    events: EventPages
    catalogue: CataloguePages
    own: OwnEventParts
    limit: PlainPageLimit
    public_url: str


def has_no_scripts(request: Request) -> bool:
    """Whether this browser runs no scripts, as far as it has shown."""
    chosen = request.parameters.get("scripts")
    return chosen == "off" or (chosen is None and cookie(request.fields, PLAIN_COOKIE) is not None)


def _place(state: State, event_id: str, request: Request) -> tuple[LineSnapshot, QueueToken] | None:
    """The line and the place of this browser, if both are known here; without I/O."""
    token, line = state.token_reader.place_token(request.scope, event_id), state.line_cache.cached(event_id)
    return (line, token) if token is not None and line is not None and line.epoch == token.epoch else None


async def waiting_page(pages: FanPages, event_id: str, request: Request) -> Answer | None:
    """The page of a fan above the head, with their position: computed from memory. None for all others."""
    state = pages.gateway
    found = _place(state, event_id, request)
    if found is None:
        return None
    line, token = found
    position = line.position(token.lane, token.join_seq)
    if position <= 0 or may_bypass(request, line, token):
        return None
    state.rate_limits.check_fan(event_id, token.holder)
    text = words(language_of(request.scope))
    page, status = await pages.events.shell(event_id, text.language), waiting_status(line, token, position)
    body = for_script(computed_status(state, line, token, position))
    brought = {"status": f',"/events/{event_id}/queue/status":{body}', "own": rendered("go_on.html", text.language)}
    return _personal(request, page.shell, waiting_slots(text, page, line, token, status) | brought)


async def plain_event_page(pages: FanPages, event_id: str, request: Request) -> Answer:
    """The whole page of a fan without scripts, at any step."""
    state, text = pages.gateway, words(language_of(request.scope))
    if not pages.limit.allow(state.rate_limits.address_of(request.scope)):
        return _busy(request, text)
    page = await pages.events.shell(event_id, text.language)
    found = _place(state, event_id, request)
    view, slots = OwnView(event_id), dict[str, str]()
    query = request.parameters
    if found is not None:
        try:
            view, slots = await _own_step(pages, text, page, found, query=query, request=request)
        except StaleEpoch:
            view.problem = _problem_words(text, StaleEpoch.slug)
        except Problem as problem:
            view.step, view.problem, view.again_s = "away", _problem_words(text, problem.slug), BUSY_AGAIN_S
    view.problem = view.problem or _problem_words(text, query.get("problem"))
    view.typed = _typed(state, request)
    if query.get("problem"):
        view.form = typed_form(request.fields, secure=state.settings.secure_cookies)
    if view.step == "lobby" and (entry := query.get("entry")):
        view.waits_s, view.again_s = _left_s(entry), None
        slots = {"entry": f'<input type="hidden" name="entry" value="{escape(entry)}">'}
    view.orders = view.orders or _orders_of(state, request) if view.step == "ended" else ()
    if view.again_s is not None and "still" in query:
        view.again_s, view.still = None, True
    own = {name: rendered(f"{name}.html", text.language, view=view) for name in ("own_top", "own")}
    seconds = view.waits_s or view.again_s
    again = f"{seconds}" if view.waits_s else f"{seconds}; url=/e/{event_id}"
    return _personal(request, page.shell, step_slots(view.step) | slots | own, again=again if seconds else "")


async def _own_step(
    pages: FanPages, text: Words, page: EventShell, place: tuple[LineSnapshot, QueueToken], *, query: Mapping[str, str],
    request: Request,
) -> tuple[OwnView, dict[str, str]]:  # fmt: skip
    """The view of a fan with a place. Raises `Problem` while its neighbours do not answer."""
    state, (line, token) = pages.gateway, place
    state.rate_limits.check_fan(token.event_id, token.holder)
    state.heartbeats.record(token.event_id, token.epoch, token.lane, token.join_seq)
    position = line.position(token.lane, token.join_seq)
    above = position > 0 and not may_bypass(request, line, token)
    status = waiting_status(line, token, position) if above else await status_from_queue(state, line, token)
    address = state.rate_limits.address_of(request.scope)
    view = await pages.own.view(text, page.stock, token, status, query=query, address=address)
    return view, waiting_slots(text, page, line, token, status) if view.step == "waiting" else {}


def waiting_slots(
    text: Words, page: EventShell, line: LineSnapshot, token: QueueToken, status: Status
) -> dict[str, str]:
    """The figures of a fan who waits, as HTML."""
    position, early = status["position_in_queue"], status["status"] == "prequeue"
    drawing = position is None
    starts_ms, event = line.frame.sale_starts_at_ms, page.facts.event
    at = datetime.fromtimestamp(starts_ms / 1000, UTC) if starts_ms else None
    starts_at = moment(text, at, event.timezone) if at and event else ""
    lane = next((each.name for each in line.frame.options.lanes if each.lane == token.lane and token.lane), "")
    shown = {
        "waiting_title": text("waiting_lottery" if drawing else "waiting_title"),
        "number_is": text("entry_number_is" if drawing else "number_is"),
        "not_called": text("not_drawn" if drawing else "not_started"),
        "starts_at": starts_at, "number": text.number(token.join_seq),
        "position": "" if drawing else text.number(position) if position else text("position_next"),
        "estimate": "" if drawing else estimate(text, status), "changed": change(text, status),
        "lane": f" {text('in_lane', lane=lane)}" if lane else "",
    }  # fmt: skip
    hidden = {
        "before_hidden": "" if early else "hidden", "clock_hidden": "" if starts_at else "hidden",
        "line_hidden": "hidden" if early or drawing else "",
    }  # fmt: skip
    return step_slots("waiting") | {name: escape(value) for name, value in shown.items()} | hidden


def _orders_of(state: State, request: Request) -> tuple[str, ...]:
    """The orders to which this browser has keys, newest last."""
    prefix = order_cookie("", secure=state.settings.secure_cookies)
    names = [name for name, _ in cookies(request.fields) if name.startswith(prefix)]
    return tuple(name.removeprefix(prefix) for name in names if name.removeprefix(prefix).isalnum())[-ORDERS_MAX:]


async def plain_order_page(pages: FanPages, reference: str, request: Request) -> Answer:
    """The page of an order for a fan without scripts, opened by its cookie."""
    state, text = pages.gateway, words(language_of(request.scope))
    if not pages.limit.allow(state.rate_limits.address_of(request.scope)):
        return _busy(request, text)
    view = await _own_order(pages, text, reference, request)
    view.problem = view.problem or _problem_words(text, request.parameters.get("problem"))
    view.typed = _typed(state, request)
    if view.again_s is not None and "still" in request.parameters:
        view.again_s, view.still = None, True
    seconds = view.again_s or 0
    own = rendered("own_order.html", text.language, view=view)
    shell = Shell(rendered("order.html", text.language, slot=slot))
    return _personal(request, shell, {"own": own}, again=f"{seconds}; url=/o/{reference}" if seconds else "")


def _typed(state: State, request: Request) -> TypedEmail:
    fields = typed_fields(request.fields, secure=state.settings.secure_cookies)
    return TypedEmail.of(fields, request.parameters.get("problem"))


async def _own_order(pages: FanPages, text: Words, reference: str, request: Request) -> OwnOrderView:
    name = order_cookie(reference, secure=pages.gateway.settings.secure_cookies)
    token = cookie(request.fields, name)
    if token is None:
        return OwnOrderView(reference)
    try:
        own = await pages.shop.own_order(ReadOwnOrder(reference=reference, token=token))
    except Problem as problem:
        again_s = BUSY_AGAIN_S if problem.code >= 500 else None
        return OwnOrderView(reference, problem=_problem_words(text, problem.slug), again_s=again_s)
    event = (await pages.events.shell(own.order.event_id, text.language)).facts.event
    names = {section.section_id: section.name for section in event.sections} if event else {}
    zone, name = (event.timezone, event.name) if event else ("UTC", "")
    proofs = {each.type_id: each.proof for each in event.price_types if each.proof} if event else {}
    return order_view(text, own, event_name=name, sections=names, zone=zone, proofs=proofs)


def _personal(request: Request, shell: Shell, slots: Mapping[str, str], *, again: str = "") -> Answer:
    """The page for this fan alone; `again` is when the browser is to load it again."""
    language = language_of(request.scope)
    headers = {**HEADERS, **of_language(language), "cache-control": "private, no-store", "content-type": HTML}
    if again:
        headers["refresh"] = again
    if request.parameters.get("scripts") == "off":
        secure = request.state.settings.secure_cookies
        kept = set_cookie(PLAIN_COOKIE, "1", max_age_s=PLAIN_COOKIE_S, secure=secure, readable=True)
        headers["set-cookie"] = kept
    return compressed(request.fields, Answer(200, shell.filled(slots).encode(), fields_of(headers)), level=1)


def _left_s(entry: str) -> int:
    """Seconds until the time that is the second part of what a join was answered with; nobody has checked it."""
    found = ENTRY.fullmatch(entry)
    return max(0, math.ceil(min(int(found[1]) - time.time(), ENTRY_MAX_S))) if found else 0


def _busy(request: Request, text: Words) -> Answer:
    """A small page instead of a personal one; the answer is an error to nobody but a balancer."""
    page = rendered("busy.html", text.language, path=request.scope["path"], after_s=BUSY_AGAIN_S)
    headers = {**HEADERS, **of_language(text.language), "cache-control": "no-store"}
    headers |= {"retry-after": str(BUSY_AGAIN_S), "refresh": str(BUSY_AGAIN_S), "content-type": HTML}
    return Answer(503, page.encode(), fields_of(headers))


def _problem_words(text: Words, slug: str | None) -> str:
    """A problem in the words of a page, by its slug. Empty without one, or if the page says it in another way."""
    if slug is None or slug in UNSHOWN:
        return ""
    key = OWN_WORDS.get(slug, f"problem_{slug.replace('-', '_')}")
    return text(key if key in text else "problem_unnamed")
