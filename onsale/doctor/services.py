"""Asks each service to check itself, through the admin API. A service that does not answer is a finding, too."""

import asyncio

from onsale.admin_client import AdminClient
from onsale.doctor.findings import Finding, merged
from onsale.errors import OperatorError
from shared import VERSION
from shared.contracts.admin.checks import ServiceChecks, broken, ok, suspicious
from shared.features import services
from shared.routes import SALE_SERVICES, Service


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
    services = tuple(report.service for report in reports)
    if not reports:
        return []
    if running == [VERSION]:
        return [Finding(ok("Version", VERSION), services)]
    found = f"{' and '.join(running)} run, this command is {VERSION}"
    return [
        Finding(suspicious("Version", found, "Finish the roll-out; use the `onsale` of the suite's version."), services)
    ]
