"""The forward-auth decision: may a request to a protected site pass? Every proxy gets the same decision.

A pass is verified without a network call. The order: a one-time code in the address is redeemed for its pass; a valid
pass is admitted; then exempt paths, then every request while the line is out of order and its rules say so, then fans
outside the rollout. All other page requests are redirected to the waiting room, other calls get a problem.

Failing open has a time limit, which begins with the outage. An outage ends only when the line has been healthy for as
long as the limit: a flapping line does not restart it.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from cachetools import FIFOCache

from services.gateway.forward_auth.handover_codes import COOKIE_PROBE, Grant, OneTimeCodes, browser_binding, new_gate_id
from services.gateway.forward_auth.request import OriginalRequest, allowed_site, gate_cookie, is_exempt, with_code
from services.gateway.metrics import FAIL_OPEN, RELEASES
from services.gateway.problems import ReturnUrlNotAllowed
from services.gateway.protection.identity import TokenReader
from services.gateway.protection.rate_limits import RateLimits
from services.gateway.waiting_line.cache import LineCache
from services.gateway.waiting_line.place_client import PlaceClient
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.clients.revoked_passes import RevokedPasses
from shared.contracts.queue import PlaceState
from shared.contracts.room_options import ForwardAuthRules, RoomOptions
from shared.errors.problems import BadCredential, NoCredential, Overloaded, Problem, Unavailable, WrongEvent
from shared.rules.rollout import outside
from shared.security.limits import bare_address
from shared.security.tokens import Pass, PassReader, pass_cookie, set_cookie

DEFAULTS = RoomOptions()
OUTAGES_MAX = 10_000


@dataclass
class _Outage:
    began_s: float
    healthy_since_s: float | None = None


class FailOpenWindow:
    """The outages of lines, as this process measures them."""

    def __init__(self) -> None:
        self._outages: FIFOCache[str, _Outage] = FIFOCache(OUTAGES_MAX)

    def outage_s(self, event_id: str, *, healthy: bool, limit_s: float) -> float | None:
        """How long this line has been out of order; `None` if it is healthy."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardAuth:
    """Decides about requests to protected sites, and takes passes to those sites and back."""

    line_cache: LineCache
    passes: PassReader
    revoked_passes: RevokedPasses
    fail_open_window: FailOpenWindow
    handover_codes: OneTimeCodes
    token_reader: TokenReader
    place_client: PlaceClient
    rate_limits: RateLimits

    async def decide(self, request: OriginalRequest) -> Decision:
        """Raises `UnknownEvent`."""
        line: LineSnapshot | None = None
        with suppress(Unavailable, Overloaded):  # neither this process nor the queue knows the line
            line = await self.line_cache.line(request.event_id)
        options = line.frame.options if line else DEFAULTS
        if request.code:
            return await self._redeem_code(request, options.gate, request.code, line)
        try:
            admission = await self._require_pass(request.event_id, request.passes, line)
        except Problem as problem:
            return self._without_pass(request, options, line, problem)
        return Decision("admitted", holder=admission.holder)

    async def create_return_link(self, event_id: str, text: str, return_to: str, browser: str) -> str:
        """The address `return_to` with a one-time code for the pass `text`, good only in `browser`. Raises what is
        wrong with the pass, `TooManyRequests`, `ReturnUrlNotAllowed`, `UnknownEvent`, `Overloaded`, `Unavailable`.
        """
        line = await self.line_cache.line(event_id)
        admission = await self._require_pass(event_id, [text], line)
        self.rate_limits.check_return_link(event_id, admission.holder)
        site = allowed_site(return_to, line.frame.options.gate)
        if site is None:
            raise ReturnUrlNotAllowed
        code = await self.handover_codes.issue(Grant(event_id=event_id, site=site, browser=browser, admission=text))
        return with_code(return_to.partition("#")[0], code)

    async def release_slot(self, event_id: str, text: str) -> PlaceState:
        """Ends the session of the pass `text`. Raises `BadCredential`, `WrongEvent`, `StaleEpoch`, `Unavailable`."""
        status = await self.place_client.release(self._read_pass(event_id, text))
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
        if is_exempt(request, options.gate):
            return Decision("let-through")
        if self._fail_open(request.event_id, options.gate, line):
            return Decision("engine-away")
        gate_id = request.gate_id or new_gate_id()
        if options.rollout_percent < 100 and (bypass := self._bypass(request, options, gate_id)):
            return bypass
        if not request.is_page:
            problem.members["waiting_room"] = _waiting_room_url(request, options.gate)
            return Decision(problem.slug, problem=problem)
        return _redirect_to_waiting_room(request, options.gate, gate_id)

    def _fail_open(self, event_id: str, rules: ForwardAuthRules, line: LineSnapshot | None) -> bool:
        """Whether the line is out of order, the room's rule is to admit everybody meanwhile, and its time limit has not
        passed. A line that nobody knows has no rules, and its event may be invented: its fans wait, and its outage is
        not recorded, because enough invented ones would end the time limits of all others.
        """
        if line is None:
            FAIL_OPEN.labels("waits").inc()
            return False
        healthy = self.line_cache.is_fresh(line)
        outage_s = self.fail_open_window.outage_s(event_id, healthy=healthy, limit_s=rules.admit_on_error_s)
        if outage_s is None:
            return False
        may_admit = rules.on_engine_error == "admit"
        admits = may_admit and outage_s < rules.admit_on_error_s
        FAIL_OPEN.labels("admitted" if admits else "time-limit-over" if may_admit else "waits").inc()
        return admits

    def _bypass(self, request: OriginalRequest, options: RoomOptions, gate_id: str) -> Decision | None:
        """Lets fans outside the rolled-out share pass. A browser first gets a cookie that identifies it; a call without
        the cookie is drawn by its address.
        """
        by_id = request.gate_id is not None or request.is_page
        named = request.headers.get("x-forwarded-for", "").rpartition(",")[2]
        drawn = self._browser_holder(request.event_id, gate_id) if by_id else bare_address(named)
        if not drawn or not outside(request.event_id, drawn, options.rollout_percent):
            return None
        if request.gate_id is None and request.is_page:
            return Decision(
                "outside-share-marked",
                location=_original_url(request, options.gate, code=COOKIE_PROBE),
                cookie=_set_gate_cookie(request, gate_id),
            )
        return Decision("outside-share")

    def _browser_holder(self, event_id: str, gate_id: str) -> str:
        """The holder that this browser will be in the line, so that site and waiting room draw the same share."""
        return self.token_reader.holder_for_key(event_id, browser_binding(gate_id).encode())

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
        grant = await self.handover_codes.redeem(code)
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
