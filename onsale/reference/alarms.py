"""Every alarm in one table, from `shared/alarms.py`; the runbook says what to do."""

from typing import get_args

from onsale.reference.markdown import Section, code, page
from shared.alarms import ALARMS, Group

TEXT = """An alarm fires when its expression has been true for the time that stands there; its name leads to what to
look at and what to do. `onsale deploy-config` writes the same as rules for Prometheus
([monitoring](../operate/monitoring.md))."""


def alarms_page() -> str:
    """docs/reference/alarms.md"""
    return page("Alarms", TEXT, (
        Section(group.capitalize(), ("alarm", "severity", "after", "what it means", "expression"), [
            (f"[{alarm.name}](../operate/runbook.md#{alarm.name.lower()})", alarm.severity, f"{alarm.for_s} s",
             alarm.meaning, code(" ".join(alarm.expr.split())))
            for alarm in ALARMS if alarm.group == group
        ]) for group in get_args(Group)
    ))  # fmt: skip
