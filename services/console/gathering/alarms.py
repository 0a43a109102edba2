"""Which alarms of `shared/alarms.py` fire by the figures of one second, and all that fire, each once; it computes and
does nothing else.

Those that need more than the figures (percentiles of requests, memory of Redis) are Prometheus' alone.
"""

from collections.abc import Callable, Mapping, Sequence

from services.console.history.alarms import active_alarm
from shared.alarms import ALARMS, URGENCY
from shared.contracts.admin.console import ActiveAlarm, Vitals

CALLING = ("open", "draining")
SILENT_S = 3.0
Predicate = Callable[[Vitals], bool]


def _stands_still(vitals: Vitals) -> bool:
    waits = (vitals.line.waiting or 0) > 100
    return waits and vitals.room.state in CALLING and vitals.rate.called_per_s == 0


PREDICATES: Mapping[str, Predicate] = {
    "QueueVeryLong": lambda vitals: (vitals.line.waiting or 0) > 1_000_000,
    "QueueLong": lambda vitals: (vitals.line.waiting or 0) > 500_000,
    "LineStandsStill": _stands_still,
    "Oversold": lambda vitals: bool(vitals.proof.oversold),
    "OrdersWait": lambda vitals: (vitals.orders.due or 0) > 100,
    "OrdersNeedAPerson": lambda vitals: bool(vitals.orders.in_review),
    "ServiceDown": lambda vitals: any(age is None or age > SILENT_S for age in vitals.ages.values()),
}


def _summary(name: str, vitals: Vitals) -> str:
    waiting = f"{vitals.line.waiting or 0:,} fans wait"
    return {
        "QueueVeryLong": waiting,
        "QueueLong": waiting,
        "LineStandsStill": f"Nobody was called although the room is open and {waiting}",
        "Oversold": "More was sold than there is",
        "OrdersWait": f"{vitals.orders.due or 0:,} orders wait for their next step",
        "OrdersNeedAPerson": f"{vitals.orders.in_review or 0:,} orders wait for a decision",
        "ServiceDown": f"No answer from {_silent(vitals)}",
    }[name]


def _silent(vitals: Vitals) -> str:
    return ", ".join(part for part, age in vitals.ages.items() if age is None or age > SILENT_S)


class AlarmClock:
    """The alarms of one event: one fires when its predicate has been true for its time."""

    def __init__(self) -> None:
        self._since_ms: dict[str, int] = {}

    def update(self, vitals: Vitals) -> list[ActiveAlarm]:
        """The alarms that fire at these figures, the most urgent first."""
        true = {name for name, predicate in PREDICATES.items() if predicate(vitals)}
        self._since_ms = {name: self._since_ms.get(name, vitals.at_ms) for name in true}
        return [
            active_alarm(alarm.name, summary=_summary(alarm.name, vitals), since_ms=self._since_ms[alarm.name])
            for alarm in sorted(ALARMS, key=lambda alarm: URGENCY.index(alarm.severity))
            if alarm.name in true and vitals.at_ms - self._since_ms[alarm.name] >= alarm.for_s * 1000
        ]


def merged(own: Sequence[ActiveAlarm], others: Sequence[ActiveAlarm]) -> list[ActiveAlarm]:
    """Our own alarms and Alertmanager's, of each name one since the earliest of its times; the most urgent first. What
    both say is said in our words; of processes, which we do not ask, Alertmanager says more.
    """
    ours = {alarm.name for alarm in own} - {"ServiceDown"}
    groups: dict[str, list[ActiveAlarm]] = {}
    for alarm in (*own, *others):
        groups.setdefault(alarm.name, []).append(alarm)
    found = (_joined(group[:1] if name in ours else group, group) for name, group in groups.items())
    return sorted(found, key=lambda alarm: URGENCY.index(alarm.severity))


def _joined(speaking: Sequence[ActiveAlarm], group: Sequence[ActiveAlarm]) -> ActiveAlarm:
    summary, since_ms = " · ".join(alarm.summary for alarm in speaking), min(alarm.since_ms for alarm in group)
    return group[0].model_copy(update={"summary": summary, "since_ms": since_ms})
