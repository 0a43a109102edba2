"""One line of `onsale doctor`: a check and the parts of the suite that found the same."""

from collections.abc import Iterable
from dataclasses import dataclass

from shared.contracts.admin.checks import Check, ServiceChecks
from shared.features import services


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
    return [Finding(check, tuple(services)) for check, services in found_by.values()]
