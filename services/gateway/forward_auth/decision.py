"""May this request pass? The gate's judgement, the same whichever proxy asks; a pass is checked without asking anybody.

In this order: a code in the address is traded for the pass it stands for; a working pass is let through; so is what
the room's rules exempt, everybody for a while when nobody can be called, and who is outside the rolled-out share. Pages
of all others are sent to the waiting room, other calls get a problem.
"""

import time
from dataclasses import dataclass
from urllib.parse import urlencode

from services.gateway.forward_auth.handover_codes import COOKIE_PROBE, browser_binding, new_gate_id
from services.gateway.forward_auth.request import OriginalRequest, gate_cookie, needs_no_pass, site_of, with_code
from services.gateway.metrics import GATE_ENGINE
from services.gateway.state import State
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.contracts.room_options import GateRules, RoomOptions
from shared.rules.rollout import outside
from shared.security.auth import pass_cookie, set_cookie
from shared.security.tokens import Pass
from shared.web.problems import BadCredential, NoCredential, Overloaded, Problem, Unavailable, WrongEvent

DEFAULTS = RoomOptions()


@dataclass(frozen=True, slots=True)
class Decision:
    """`word` for the metrics; a `location` or a `problem` is a no. At most one cookie: nginx passes on no more."""

    word: str
    holder: str | None = None
    location: str | None = None
    cookie: str | None = None
    problem: Problem | None = None


async def decide(state: State, asked: OriginalRequest) -> Decision:
    """The verdict. Raises `UnknownEvent`."""
    line = await line_of(state, asked.event_id)
    options = line.frame.options if line else DEFAULTS
    if asked.handover:
        return await _redeem_code(state, asked, options.gate, asked.handover)
    try:
        admission = await admitted(state, asked.event_id, asked.passes, line)
    except Problem as refused:
        return _without_pass(state, asked, options, line, refused)
    return Decision("admitted", holder=admission.holder)


async def line_of(state: State, event_id: str) -> LineSnapshot | None:
    """The line as this process knows it, asked for at first use; nothing while nobody can tell."""
    try:
        return await state.board.line(event_id)
    except (Unavailable, Overloaded):
        return None


async def admitted(state: State, event_id: str, passes: list[str], line: LineSnapshot | None) -> Pass:
    """The first of these passes that works. Raises what is wrong with the last, or `NoCredential`."""
    refused: Problem = NoCredential()
    for text in passes:
        try:
            admission = state.passes.read(text, now_s=time.time())
            if admission.event_id != event_id:
                raise WrongEvent
            if line is not None and line.epoch > admission.epoch:
                raise BadCredential("The waiting room was reset; this pass is from before.")
            if await state.revocations.is_dead(event_id, admission.jti):
                raise BadCredential("This pass has done its work; its slot was given back.")
            return admission
        except Problem as problem:
            refused = problem
    raise refused


def _without_pass(
    state: State, asked: OriginalRequest, options: RoomOptions, line: LineSnapshot | None, refused: Problem
) -> Decision:
    if needs_no_pass(asked, options.gate):
        return Decision("let-through")
    if _fail_open(state, asked.event_id, options.gate, line):
        return Decision("engine-away")
    gate_id = asked.gate_id or new_gate_id()
    if options.rollout_percent < 100 and (beside := _beside(state, asked, options, gate_id)):
        return beside
    if not asked.is_page:
        refused.members["waiting_room"] = _waiting_room(asked, options.gate)
        return Decision(refused.slug, problem=refused)
    return _redirect_to_waiting_room(asked, options.gate, gate_id)


def _fail_open(state: State, event_id: str, rules: GateRules, line: LineSnapshot | None) -> bool:
    """Whether nobody can be called, the room's rule is to admit meanwhile, and that has not lasted too long."""
    well = line is not None and state.board.fresh(line)
    lasts_s = state.outages.lasts_s(event_id, well=well, box_s=rules.admit_on_error_s)
    if lasts_s is None:
        return False
    admits = rules.on_engine_error == "admit" and lasts_s < rules.admit_on_error_s
    GATE_ENGINE.labels("admitted" if admits else "box-over" if rules.on_engine_error == "admit" else "waits").inc()
    return admits


def _beside(state: State, asked: OriginalRequest, options: RoomOptions, gate_id: str) -> Decision | None:
    """Who is outside the rolled-out share passes. A browser is given its id first; a call without one is drawn by its
    address.
    """
    by_id = asked.gate_id is not None or asked.is_page
    drawn = _holder(state, asked.event_id, gate_id) if by_id else asked.headers.get("x-forwarded-for", "")
    if not drawn or not outside(asked.event_id, drawn, options.rollout_percent):
        return None
    if asked.gate_id is None and asked.is_page:
        return Decision(
            "outside-share-marked",
            location=_here(asked, options.gate, code=COOKIE_PROBE),
            cookie=_gate_cookie(asked, gate_id),
        )
    return Decision("outside-share")


def _holder(state: State, event_id: str, gate_id: str) -> str:
    """The holder that this browser will be in the line: gate and room draw the same lot."""
    return state.identities.holder(event_id, browser_binding(gate_id).encode())


async def _redeem_code(state: State, asked: OriginalRequest, rules: GateRules, code: str) -> Decision:
    """Back to the address without its code, with a cookie of this site if the code was good. A browser that keeps no
    cookies is sent to the waiting room for good, not in circles.
    """
    if asked.gate_id is None:
        return Decision("no-cookies", location=_waiting_room(asked, rules))
    grant = await state.handovers.take(code) if code != COOKIE_PROBE else None
    fits = (asked.event_id, asked.site, browser_binding(asked.gate_id))
    if grant is None or (grant.event_id, grant.site, grant.gate) != fits:
        return Decision("code-spent" if code != COOKIE_PROBE else "outside-share-kept", location=_here(asked, rules))
    try:
        admission = state.passes.read(grant.admission, now_s=time.time())
    except BadCredential:
        return Decision("code-spent", location=_here(asked, rules))
    max_age_s = max(1, admission.expires_at_s - int(time.time()))
    name = pass_cookie(asked.event_id, secure=asked.secure)
    cookie = set_cookie(name, grant.admission, max_age_s=max_age_s, secure=asked.secure)
    return Decision("handed-over", location=_here(asked, rules), cookie=cookie)


def _redirect_to_waiting_room(asked: OriginalRequest, rules: GateRules, gate_id: str) -> Decision:
    """The fan page, told in the fragment (which no server sees) where to come back to and in which browser."""
    back = asked.url() if asked.method in ("GET", "HEAD") else f"{asked.site}/"
    told = {"return_to": back, "gate": browser_binding(gate_id)} if site_of(back, rules) else {}
    location = _waiting_room(asked, rules) + (f"#{urlencode(told)}" if told else "")
    cookie = _gate_cookie(asked, gate_id) if asked.gate_id is None else None
    return Decision("to-the-room", location=location, cookie=cookie)


def _gate_cookie(asked: OriginalRequest, gate_id: str) -> str:
    name = gate_cookie(asked.event_id, secure=asked.secure)
    return set_cookie(name, gate_id, max_age_s=7 * 86_400, secure=asked.secure)


def _waiting_room(asked: OriginalRequest, rules: GateRules) -> str:
    """On the host that was asked unless the rules name another: a path, as what names the host may be the client's own
    words.
    """
    return f"{rules.waiting_room or ''}/e/{asked.event_id}"


def _here(asked: OriginalRequest, rules: GateRules, *, code: str | None = None) -> str:
    """The address asked for, with this code; its host only where the rules know it."""
    if asked.site in rules.return_to:
        return asked.url(code=code)
    path = with_code(asked.uri, code)
    return f"/.{path}" if path.startswith("//") else path  # which browsers would take for a host
