"""`onsale doctor`: one line a check, `ok`, `look` or `broken`, and what to do.

It asks each service to check itself, through the admin API; a service that does not answer is a finding, too. Of events
on sale it checks what only a reader of queue and inventory sees: times in order, holds against sessions, allotments,
amounts. Of the operator's machine: the certificate, the data directory and its disk, Prometheus' targets.
"""

import asyncio
import json
import shutil
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import httpx
import typer
from rich.markup import escape
from rich.table import Table

from features.doctor.capacity import disk_check
from onsale.admin_client import AdminClient
from onsale.cli.context import for_suite, out, target, with_admin
from onsale.data_dir import ADMIN_KEY_FILE, ENGINES_FILE, TARGETS_FILE
from onsale.errors import OperatorError
from onsale.local.key_file import KEY_FILE
from shared import VERSION
from shared.contracts.admin import queue
from shared.contracts.admin.checks import Check, ServiceChecks, Verdict, broken, ok, suspicious
from shared.contracts.catalogue import EventCard, EventDetails
from shared.contracts.event_file import StockPart
from shared.contracts.prices import PRICES_MAX
from shared.features import services
from shared.routes import SALE_SERVICES, Service
from shared.rules.addresses import ascii_host, is_loopback

COLOURS: dict[Verdict, str] = {"ok": "green", "look": "yellow", "broken": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """`found_by` names services, an event, or `here` for the operator's machine."""

    check: Check
    found_by: tuple[str, ...]

    @property
    def where(self) -> str:
        """`all services` rather than their names."""
        return "all services" if self.found_by == services() else ", ".join(self.found_by)


def merged(reports: Iterable[ServiceChecks]) -> list[Finding]:
    """The checks of all services, each once: services that share a database find the same."""
    found_by: dict[str, tuple[Check, list[str]]] = {}
    for report in reports:
        for check in report.checks:
            found_by.setdefault(check.model_dump_json(), (check, []))[1].append(report.service)
    return [Finding(check, tuple(names)) for check, names in found_by.values()]


@for_suite
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON, for another program.")] = False,
    problems: Annotated[bool, typer.Option("--problems", help="Print only what is not ok.")] = False,
) -> None:
    """Check an installation: databases, clocks, keys, limits, events, disk, certificate, Prometheus' targets.

    Each service checks itself, so this works from anywhere that reaches the admin API. look: perhaps meant so. broken:
    a sale must not begin like this. Exit code 1 if something is broken. No secret is printed.

    Example: onsale doctor --url https://tickets.example
    """
    findings = with_admin(_all_findings)
    if as_json:
        rows = [finding.check.model_dump() | {"found_by": finding.found_by} for finding in findings]
        out.print_json(json.dumps(rows))
    else:
        _print(findings, only_problems=problems)
    if any(finding.check.verdict == "broken" for finding in findings):
        raise typer.Exit(1)


async def _all_findings(admin: AdminClient) -> list[Finding]:
    checking = check_services(admin), check_here(target().url, target().data_dir), check_events(admin)
    return [finding for found in await asyncio.gather(*checking) for finding in found]


def _print(findings: list[Finding], *, only_problems: bool) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=6)
    table.add_column(max_width=24)
    table.add_column(overflow="fold")
    for finding in findings:
        check = finding.check
        if check.verdict == "ok" and only_problems:
            continue
        text = f"{escape(check.found)} [dim]({escape(finding.where)})[/]"
        advice = f"\n→ {escape(check.advice)}" if check.advice else ""
        colour = COLOURS[check.verdict]
        table.add_row(f"[{colour}]{check.verdict}[/]", escape(check.subject), text + advice)
    out.print(table)
    counts = Counter(finding.check.verdict for finding in findings)
    out.print(f"{counts['ok']} ok, {counts['look']} to look at, {counts['broken']} broken")


# -- services ----------------------------------------------------------------------------------------------------------


async def check_services(admin: AdminClient) -> list[Finding]:
    """What one process of each service finds; behind a balancer another one may answer next time."""
    answers = await asyncio.gather(*(_ask(admin, service) for service in services()))
    reports = [answer for answer in answers if isinstance(answer, ServiceChecks)]
    silent = {s: answer for s, answer in zip(services(), answers, strict=True) if isinstance(answer, OperatorError)}
    return [*_silent(silent), *_versions(reports), *merged(reports)]


async def _ask(admin: AdminClient, service: Service) -> ServiceChecks | OperatorError:
    try:
        found: ServiceChecks = await admin.call(f"read_{service}_checks")
    except OperatorError as failed:
        return failed
    return found


def _silent(failures: dict[Service, OperatorError]) -> list[Finding]:
    """One line a silent service; if none answers, one line: it is the address, the key or the whole suite."""
    if len(failures) == len(services()):
        advice = "Is it running, does this machine reach it (--url), and is the admin key right?"
        return [Finding(broken("Suite", f"no service answers: {failures[services()[0]]}", advice), services())]
    return [
        Finding(
            (broken if service in SALE_SERVICES else suspicious)(  # a sale needs no console
                "Service", f"{service} does not answer: {failed}",
                f"Is it running, and does the balancer reach it? See the log of {service}.",
            ), (service,)
        )
        for service, failed in failures.items()
    ]  # fmt: skip


def _versions(reports: list[ServiceChecks]) -> list[Finding]:
    running = sorted({report.version for report in reports})
    answered = tuple(report.service for report in reports)
    if not reports:
        return []
    if running == [VERSION]:
        return [Finding(ok("Version", VERSION), answered)]
    found = f"{' and '.join(running)} run, this command is {VERSION}"
    return [
        Finding(suspicious("Version", found, "Finish the roll-out; use the `onsale` of the suite's version."), answered)
    ]


# -- events on sale ----------------------------------------------------------------------------------------------------


AT_ONCE = 8
SCHEDULE = "Schedule"


class ScheduledEvent(NamedTuple):
    """All that is known of one event."""

    details: EventDetails
    room: queue.RoomView


async def check_events(admin: AdminClient) -> list[Finding]:
    """One line for each finding, or for an event without any. Events that have started are left out."""
    now, limit = datetime.now(UTC), asyncio.Semaphore(AT_ONCE)
    try:
        pages = admin.pages("list_events_on_sale", query={"page_size": 500})
        cards: list[EventCard] = [card async for page in pages for card in page.events]
    except OperatorError as failed:
        advice = "Inventory lists them: see its lines above and its log."
        return [Finding(broken("Events", f"cannot be listed: {failed}", advice), ("inventory",))]

    async def check(event_id: str) -> list[Finding]:
        async with limit:
            return [Finding(found, (event_id,)) for found in await _check_event(admin, event_id, now)]

    ahead = [card.event_id for card in cards if card.starts_at > now]
    return [finding for found in await asyncio.gather(*map(check, ahead)) for finding in found]


async def _check_event(admin: AdminClient, event_id: str, now: datetime) -> list[Check]:
    try:
        details = await admin.read_event_on_sale(event_id)
        room = await admin.read_room(event_id)
        file = await admin.read_inventory_event(event_id)
    except OperatorError as failed:
        advice = "Apply its event file again: it is not known to every service."
        return [broken(SCHEDULE, f"cannot be read: {failed}", advice)]
    own = file.findings(sale_ends_at=room.sale_ends_at, starts_at=details.starts_at, now=now)
    return check_schedule(ScheduledEvent(details, room), now, own) + await amounts(admin, event_id, file)


async def amounts(admin: AdminClient, event_id: str, file: StockPart) -> list[Check]:
    """Prices, fees and codes that were applied before a provider that cannot charge them was configured."""
    try:
        priced = [price for one in file.sections for price in (one, *getattr(one, "price_levels", ()))]
        each = sorted({price.price_minor + price.fee_minor for price in priced})
        typed = sorted(
            {
                f"{kind.all_in_minor(price.price_minor, price.fee_minor, file.currency, price.prices)}:{kind.type_id}"
                for kind in file.price_types[1:]
                for price in priced
            }
        )
        answers = [
            await admin.check_amounts(event_id, each=each[n : n + PRICES_MAX], each_of_type=typed[n : n + PRICES_MAX])
            for n in range(0, max(len(each), len(typed)), PRICES_MAX)
        ]
    except OperatorError as failed:
        return [broken("Amounts", f"cannot be checked: {failed}", "See the log of orders.")]
    advice = "Fans would fail at the last step: correct the event file or the code, and apply it again."
    found = dict.fromkeys(refusal for answer in answers for refusal in answer.refusals)
    return [broken("Amounts", refusal, advice) for refusal in found]


def check_schedule(event: ScheduledEvent, now: datetime, own: Sequence[Check] = ()) -> list[Check]:
    """What does not fit, with the `own` findings of its file; one `ok` if all does."""
    found = [*_order(event), *_state(event, now), *_durations(event), *own, *event.room.findings()]
    times = (event.room.queue_opens_at, event.room.sale_starts_at, event.room.sale_ends_at, event.details.starts_at)
    names = ("queue opens", "sale starts", "sale ends", "show starts")
    named = [f"{name} {at:%Y-%m-%d %H:%M}" for name, at in zip(names, times, strict=True) if at]
    return found or [ok(SCHEDULE, f"{event.room.state}; {', '.join(named)}")]


def _order(event: ScheduledEvent) -> list[Check]:
    opens, starts, ends = event.room.queue_opens_at, event.room.sale_starts_at, event.room.sale_ends_at
    times = [at for at in (opens, starts, ends) if at]
    fix = "Correct the event file and apply it again."
    if times != sorted(times):
        return [broken(SCHEDULE, "queue opening, start and end of the sale are not in this order", fix)]
    if times and times[0] >= event.details.starts_at:
        return [broken(SCHEDULE, "the sale begins after the show", fix)]
    if ends and ends > event.details.starts_at:
        return [suspicious(SCHEDULE, "the sale ends after the show has begun", fix)]
    return []


def _state(event: ScheduledEvent, now: datetime) -> list[Check]:
    room, event_id = event.room, event.details.event_id
    began = next((at for at in (room.queue_opens_at, room.sale_starts_at) if at), None)
    if room.state == "draft":
        advice = f"`onsale room open {event_id}`, until then nobody can join."
        late = began is not None and began <= now
        return [
            (broken if late else suspicious)(SCHEDULE, "the room is a draft" + " and the sale has begun" * late, advice)
        ]
    if room.sale_ends_at and room.sale_ends_at <= now and room.state != "closed":
        return [
            suspicious(SCHEDULE, f"the sale has ended and the room is {room.state}", f"`onsale room close {event_id}`.")
        ]
    return []


def _durations(event: ScheduledEvent) -> list[Check]:
    hold_s, session_s = event.details.limits.hold_ttl_s, event.room.session_s
    if hold_s > session_s:
        found = f"hold_ttl_s {hold_s} is longer than session_s {session_s}"
        return [
            suspicious(
                "Durations", found, "Seats are kept for fans whose session is over: shorten one or lengthen one."
            )
        ]
    return []


# -- this machine ------------------------------------------------------------------------------------------------------


HERE = ("here",)
TIMEOUT_S = 5.0
CERTIFICATE_DAYS_MIN = 14


async def check_here(url: str, data_dir: Path) -> list[Finding]:
    """The data directory is checked if a suite of `onsale up` has run in it."""
    checks = [*await asyncio.to_thread(_certificate, url)]
    if (data_dir / ENGINES_FILE).exists():
        usage = shutil.disk_usage(data_dir)
        checks.append(disk_check("Data directory", usage.free, usage.total))
        checks += [*_secret_files(data_dir), *await _targets(data_dir)]
    return [Finding(check, HERE) for check in checks]


def _certificate(url: str) -> list[Check]:
    subject, parts = "Certificate", urlsplit(url)
    host = ascii_host(parts.hostname or "")
    if parts.scheme != "https":
        if is_loopback(host):
            return []
        return [suspicious(subject, f"{host} is reached without HTTPS", "Passwords and passes can be read on the way.")]
    try:
        with (
            socket.create_connection((host, parts.port or 443), timeout=TIMEOUT_S) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as tls,
        ):
            ends_s = ssl.cert_time_to_seconds(str((tls.getpeercert() or {})["notAfter"]))
    except ssl.SSLCertVerificationError as invalid:
        return [broken(subject, f"{host}: {invalid.verify_message}", "Browsers refuse it: renew it.")]
    except (OSError, KeyError) as failed:
        return [broken(subject, f"{host}: {type(failed).__name__}", "Is the balancer running, and is it this address?")]
    days = int((ends_s - time.time()) // 86_400)
    if days < CERTIFICATE_DAYS_MIN:
        return [suspicious(subject, f"{host}: ends in {days} days", "Renew it before the sale.")]
    return [ok(subject, f"{host}: good for {days} days")]


def _secret_files(data_dir: Path) -> list[Check]:
    subject = "Secret files"
    files = [data_dir / name for name in (KEY_FILE, ADMIN_KEY_FILE, ENGINES_FILE) if (data_dir / name).exists()]
    if exposed := [str(file) for file in files if file.stat().st_mode & 0o077]:
        advice = f"chmod 600 {' '.join(exposed)}; rotate the keys if other people use this machine."
        return [broken(subject, "other users can read them", advice)]
    return [ok(subject, "readable by their owner only")]


async def _targets(data_dir: Path) -> list[Check]:
    """Each process that Prometheus is to scrape answers with its metrics."""
    subject, file = "Prometheus targets", data_dir / TARGETS_FILE
    try:
        targets = [target for group in json.loads(file.read_text()) for target in group["targets"]]
    except FileNotFoundError:
        return [broken(subject, f"{file} is missing", "Start the suite again: alarms have nothing to see without it.")]
    except (OSError, ValueError, KeyError, TypeError):
        return [broken(subject, f"{file} cannot be read", "Start the suite again.")]
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
        silent = [target for target in targets if not await _has_metrics(client, target)]
    if silent:
        advice = "Alarms do not see that process: is it running? See the log in the data directory."
        return [broken(subject, f"no metrics from {', '.join(silent)}", advice)]
    return [ok(subject, f"{len(targets)} answer with metrics")]


async def _has_metrics(client: httpx.AsyncClient, target: str) -> bool:
    try:
        answer = await client.get(f"http://{target}/metrics")
    except httpx.HTTPError:
        return False
    return answer.is_success and "onsale_" in answer.text
