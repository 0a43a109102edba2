"""The forward-auth decision: may a request to a protected site pass? Every proxy gets the same decision.

A pass is verified without a network call. The order: a one-time code in the address is redeemed for its pass; a valid
pass is admitted; then exempt paths, then every request while the line is out of order and its rules say so, then fans
outside the rollout. All other page requests are redirected to the waiting room, other calls get a problem.

Failing open has a time limit, which begins with the outage. An outage ends only when the line has been healthy for as
long as the limit: a flapping line does not restart it.

A one-time code takes a pass from the waiting room's host to the site: the address carries the code only. It works once,
for 30 s, on one site, in the one browser that this site redirected to the waiting room.
"""

import hashlib
import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import get_args
from urllib.parse import urlencode

from cachetools import FIFOCache
from prometheus_client import Counter
from pydantic import BaseModel

from features.forward_auth.gateway.request import (
    OriginalRequest,
    Proxy,
    allowed_site,
    gate_cookie,
    is_exempt,
    with_code,
)
from features.forward_auth.rules import ForwardAuthRules, RoomGate
from services.gateway.metrics import FRAMES, RATE_LIMITED
from services.gateway.protection.rate_limits import require_token
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS as TUNING
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.clients.revoked_passes import RevokedPasses
from shared.contracts.file_parts import part_of
from shared.contracts.frames import LineFrame
from shared.contracts.queue import PlaceState
from shared.contracts.room_options import RoomOptions
from shared.errors.problems import (
    BadCredential,
    MalformedRequest,
    NoCredential,
    Overloaded,
    Problem,
    TooManyRequests,
    Unavailable,
    UnknownEvent,
    WrongEvent,
)
from shared.redis.client import REDIS_AWAY
from shared.runtime.metrics import with_series
from shared.security.limits import Buckets, bare_address
from shared.security.tokens import Pass, PassReader, b64, pass_cookie, set_cookie

DEFAULTS = RoomOptions()
OUTAGES_MAX = 10_000
CODE_LIFETIME_S = 30
COOKIE_PROBE = "here"  # not a code: tests whether the browser keeps cookies
_CODE = re.compile(r"[A-Za-z0-9_-]{32}")
LINKS_PER_MINUTE = 20  # return links of one fan; as many at once
RETURN_LINK = "return-link"  # that limit, in the metric
REFUSALS = (
    NoCredential, BadCredential, WrongEvent, MalformedRequest, UnknownEvent, TooManyRequests, Overloaded, Unavailable,
)  # fmt: skip
VERDICTS = (
    "admitted", "let-through", "engine-away", "outside-share", "outside-share-kept", "outside-share-marked",
    "no-cookies", "code-spent", "handed-over", "to-the-room", *(problem.slug for problem in REFUSALS),
)  # fmt: skip
CHECKS = with_series(
    Counter("gateway_forward_auth_checks_total", "Forward-auth checks, by proxy and verdict.", ["proxy", "verdict"]),
    proxy=get_args(Proxy), verdict=VERDICTS,
)  # fmt: skip
FAIL_OPEN = with_series(
    Counter(
        "gateway_forward_auth_redis_errors_total",
        "Requests without a pass while the line is out of order, by verdict.",
        ["verdict"],
    ),
    verdict=("admitted", "time-limit-over", "waits"),
)
RELEASES = with_series(
    Counter("gateway_forward_auth_releases_total", "Slots released by sites, by the place's new state.", ["state"]),
    state=get_args(PlaceState),
)
with_series(RATE_LIMITED, limit=[RETURN_LINK])


class ReturnUrlNotAllowed(Problem, status=422):
    """This return address is not allowed. Add its site to `gate.return_to` of the event file."""


class Grant(BaseModel):
    """The pass that a code stands for, and where it may be redeemed."""

    event_id: str
    site: str
    browser: str
    admission: str


@dataclass
class _Outage:
    began_s: float
    healthy_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`verdict` goes into `X-Onsale-Verdict` and the metrics. A `location` or a `problem` means that the request may
    not pass. At most one cookie, because nginx passes on no more.
    """

    verdict: str
    holder: str | None = None
    location: str | None = None
    cookie: str | None = None
    problem: Problem | None = None


class ForwardAuth:
    """Decides about requests to protected sites, and takes passes to those sites and back."""

    def __init__(self, state: State) -> None:
        self._line_cache, self._token_reader, self._places = state.line_cache, state.token_reader, state.place_client
        self.passes, self._redis = PassReader.of(state.settings), state.redis
        self.revoked_passes = RevokedPasses(state.redis, state.queue, invalid=FRAMES.labels("invalid").inc)
        self._passes_by = state.passes_by
        self._outages: FIFOCache[str, _Outage] = FIFOCache(OUTAGES_MAX)
        self._links = Buckets(
            per_s=LINKS_PER_MINUTE / 60, burst=LINKS_PER_MINUTE, keys_max=TUNING.rate_limit_keys_max,
            shared_by=state.settings.processes,
        )  # fmt: skip

    async def decide(self, request: OriginalRequest) -> Decision:
        """Raises `UnknownEvent`."""
        line: LineSnapshot | None = None
        with suppress(Unavailable, Overloaded):  # neither this process nor the queue knows the line
            line = await self._line_cache.line(request.event_id)
        options = line.frame.options if line else DEFAULTS
        if request.code:
            return await self._redeem_code(request, _gate(options), request.code, line)
        try:
            admission = await self._require_pass(request.event_id, request.passes, line)
        except Problem as problem:
            return self._without_pass(request, options, line, problem)
        return Decision("admitted", holder=admission.holder)

    async def create_return_link(self, event_id: str, text: str, return_to: str, browser: str) -> str:
        """The address `return_to` with a one-time code for the pass `text`, good only in `browser`. Raises what is
        wrong with the pass, `TooManyRequests`, `ReturnUrlNotAllowed`, `UnknownEvent`, `Overloaded`, `Unavailable`.
        """
        line = await self._line_cache.line(event_id)
        admission = await self._require_pass(event_id, [text], line)
        require_token(self._links.take((event_id, admission.holder), now_s=time.monotonic()), RETURN_LINK)
        site = allowed_site(return_to, _gate(line.frame.options))
        if site is None:
            raise ReturnUrlNotAllowed
        code, grant = secrets.token_urlsafe(24), Grant(event_id=event_id, site=site, browser=browser, admission=text)
        await self._redis.set(_key(code), grant.model_dump_json(), ex=CODE_LIFETIME_S)
        return with_code(return_to.partition("#")[0], code)

    async def release_slot(self, event_id: str, text: str) -> PlaceState:
        """Ends the session of the pass `text`. Raises `BadCredential`, `WrongEvent`, `StaleEpoch`, `Unavailable`."""
        status = await self._places.release(self._read_pass(event_id, text))
        RELEASES.labels(status).inc()
        return status

    def _read_pass(self, event_id: str, text: str) -> Pass:
        admission = self.passes.read(text, now_s=time.time())
        if admission.event_id != event_id:
            raise WrongEvent
        return admission

    async def _require_pass(self, event_id: str, passes: list[str], line: LineSnapshot | None) -> Pass:
        """The first valid one of these passes. Raises what is wrong with the last one, or `NoCredential`."""
        last: Problem = NoCredential()
        for text in passes:
            try:
                admission = self._read_pass(event_id, text)
                if line is not None and line.epoch > admission.epoch:
                    raise BadCredential("The waiting room was reset after this pass was issued. Join the line again.")
                if await self.revoked_passes.is_revoked(event_id, admission.jti):
                    raise BadCredential("This pass was revoked: its slot was released. Join the line again.")
                return admission
            except Problem as problem:
                last = problem
        raise last

    def _without_pass(
        self, request: OriginalRequest, options: RoomOptions, line: LineSnapshot | None, problem: Problem
    ) -> Decision:
        if is_exempt(request, _gate(options)):
            return Decision("let-through")
        if self._fail_open(request.event_id, _gate(options), line):
            return Decision("engine-away")
        gate_id = request.gate_id or secrets.token_urlsafe(16)
        if line is not None and (bypass := self._bypass(request, line.frame, gate_id)):
            return bypass
        if not request.is_page:
            problem.members["waiting_room"] = _waiting_room_url(request, _gate(options))
            return Decision(problem.slug, problem=problem)
        return _redirect_to_waiting_room(request, _gate(options), gate_id)

    def _fail_open(self, event_id: str, rules: ForwardAuthRules, line: LineSnapshot | None) -> bool:
        """Whether the line is out of order, the room's rule is to admit everybody meanwhile, and its time limit has not
        passed. A line that nobody knows has no rules, and its event may be invented: its fans wait, and its outage is
        not recorded, because enough invented ones would end the time limits of all others.
        """
        if line is None:
            FAIL_OPEN.labels("waits").inc()
            return False
        healthy = self._line_cache.is_fresh(line)
        outage_s = self._outage_s(event_id, healthy=healthy, limit_s=rules.admit_on_error_s)
        if outage_s is None:
            return False
        may_admit = rules.on_engine_error == "admit"
        admits = may_admit and outage_s < rules.admit_on_error_s
        FAIL_OPEN.labels("admitted" if admits else "time-limit-over" if may_admit else "waits").inc()
        return admits

    def _outage_s(self, event_id: str, *, healthy: bool, limit_s: float) -> float | None:
        """How long this line has been out of order, as this process measures it; `None` if it is healthy."""
        now_s, outage = time.monotonic(), self._outages.get(event_id)
        if not healthy:
            if outage is None:
                outage = self._outages[event_id] = _Outage(now_s)
            outage.healthy_since_s = None
            return now_s - outage.began_s
        if outage is not None:
            if outage.healthy_since_s is None:
                outage.healthy_since_s = now_s
            elif now_s - outage.healthy_since_s >= limit_s:
                del self._outages[event_id]
        return None

    def _bypass(self, request: OriginalRequest, frame: LineFrame, gate_id: str) -> Decision | None:
        """Lets fans pass who need not wait in the line either. A browser first gets a cookie that identifies it; a call
        without the cookie is drawn by its address.
        """
        by_id = request.gate_id is not None or request.is_page
        named = request.headers.get("x-forwarded-for", "").rpartition(",")[2]
        # in the line this browser will be this holder: site and waiting room draw the same share
        holder = self._token_reader.holder_for_key(request.event_id, browser_binding(gate_id).encode())
        drawn = holder if by_id else bare_address(named)
        if not drawn or not any(passes_by(frame, drawn) for passes_by in self._passes_by):
            return None
        if request.gate_id is None and request.is_page:
            return Decision(
                "outside-share-marked",
                location=_original_url(request, _gate(frame.options), code=COOKIE_PROBE),
                cookie=_set_gate_cookie(request, gate_id),
            )
        return Decision("outside-share")

    async def _redeem_code(
        self, request: OriginalRequest, rules: ForwardAuthRules, code: str, line: LineSnapshot | None
    ) -> Decision:
        """Redirects to the address without its code; sets the site's cookie if the code was valid. A browser that keeps
        no cookies is sent to the waiting room, to avoid a redirect loop.
        """
        if request.gate_id is None:
            return Decision("no-cookies", location=_waiting_room_url(request, rules))
        here = _original_url(request, rules)
        if code == COOKIE_PROBE:
            return Decision("outside-share-kept", location=here)
        grant = await self._spend(code)
        expected = (request.event_id, request.site, browser_binding(request.gate_id))
        if grant is None or (grant.event_id, grant.site, grant.browser) != expected:
            return Decision("code-spent", location=here)
        try:
            admission = await self._require_pass(request.event_id, [grant.admission], line)
        except Problem:
            return Decision("code-spent", location=here)
        max_age_s = max(1, admission.expires_at_s - int(time.time()))
        name = pass_cookie(request.event_id, secure=request.secure)
        cookie = set_cookie(name, grant.admission, max_age_s=max_age_s, secure=request.secure)
        return Decision("handed-over", location=here, cookie=cookie)

    async def _spend(self, code: str) -> Grant | None:
        """The grant of a code, once; `None` if it is spent or expired, and while Redis is away."""
        if not _CODE.fullmatch(code):
            return None
        try:
            raw = await self._redis.getdel(_key(code))
        except REDIS_AWAY:
            return None
        return None if raw is None else Grant.model_validate_json(raw)


def browser_binding(gate_id: str) -> str:
    """SHA-256 of the gate id: identifies the browser to other hosts without letting them impersonate it."""
    return b64(hashlib.sha256(f"onsale gate {gate_id}".encode()).digest()[:18])


def _key(code: str) -> str:
    return f"gateway:handover:{hashlib.sha256(code.encode()).hexdigest()}"


def _gate(options: RoomOptions) -> ForwardAuthRules:
    return part_of(options, RoomGate).gate


def _redirect_to_waiting_room(request: OriginalRequest, rules: ForwardAuthRules, gate_id: str) -> Decision:
    """To the fan page; the fragment (which no server sees) names the address to return to and the browser."""
    back = request.url() if request.method in ("GET", "HEAD") else f"{request.site}/"
    fragment = {"return_to": back, "gate": browser_binding(gate_id)} if allowed_site(back, rules) else {}
    location = _waiting_room_url(request, rules) + (f"#{urlencode(fragment)}" if fragment else "")
    cookie = _set_gate_cookie(request, gate_id) if request.gate_id is None else None
    return Decision("to-the-room", location=location, cookie=cookie)


def _set_gate_cookie(request: OriginalRequest, gate_id: str) -> str:
    name = gate_cookie(request.event_id, secure=request.secure)
    return set_cookie(name, gate_id, max_age_s=7 * 86_400, secure=request.secure)


def _waiting_room_url(request: OriginalRequest, rules: ForwardAuthRules) -> str:
    """A path on the requested host unless the rules name another host. The host is never written out from the request:
    the client may have chosen it.
    """
    return f"{rules.waiting_room or ''}/e/{request.event_id}"


def _original_url(request: OriginalRequest, rules: ForwardAuthRules, *, code: str | None = None) -> str:
    """The requested address with this code; with its host only where the rules know the site."""
    if request.site in rules.return_to:
        return request.url(code=code)
    path = with_code(request.uri, code)
    return f"/.{path}" if path.startswith("//") else path  # browsers would take `//x` for a host
