"""Alarms in the words of `shared/alarms.py`: which fire by the figures of one second, all that fire, each once, and
those of the past by the samples they fired in. It computes and does nothing else.

Those that need more than the figures (percentiles of requests, memory of Redis) are Prometheus' alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from features.console.schemas import ActiveAlarm, PastAlarm, Vitals
from shared.alarms import ALARMS, BY_NAME, URGENCY

CALLING = ("open", "draining")
SILENT_S = 3.0
SAMPLE_S = 10
MISSED_S = 35  # an alarm that fires again within this time has fired all along
PAST_MAX = 200
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


def active_alarm(name: str, *, summary: str, since_ms: int) -> ActiveAlarm:
    """An alarm of the table that fires."""
    alarm = BY_NAME[name]
    return ActiveAlarm(
        name=name, severity=alarm.severity, summary=summary, meaning=alarm.meaning, check_first=alarm.check_first,
        do=alarm.do, since_ms=since_ms,
    )  # fmt: skip


def past_alarms(samples: Iterable[tuple[int, Mapping[str, str]]], *, now_ms: int) -> list[PastAlarm]:
    """From the seconds of samples, oldest first, and the summaries in each by name: each alarm from its first sample to
    its last, newest first. One still fires if it did in the last sample and that is not too old.
    """
    found: list[PastAlarm] = []
    newest: dict[str, PastAlarm] = {}
    ends_ms = 0
    for at_s, summaries in samples:
        since_ms, ends_ms = at_s * 1000, (at_s + SAMPLE_S) * 1000
        for name in (name for name in summaries if name in BY_NAME):
            past = newest.get(name)
            if past is None or ends_ms - (past.ended_ms or 0) > MISSED_S * 1000:
                active = active_alarm(name, summary=summaries[name], since_ms=since_ms)
                past = newest[name] = PastAlarm(**dict(active), ended_ms=ends_ms)
                found.append(past)
            past.ended_ms = ends_ms
    if now_ms - ends_ms <= (MISSED_S - SAMPLE_S) * 1000:
        for past in newest.values():
            past.ended_ms = None if past.ended_ms == ends_ms else past.ended_ms
    return sorted(found, key=lambda alarm: -alarm.since_ms)[:PAST_MAX]
