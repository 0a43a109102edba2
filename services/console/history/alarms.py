"""Alarms in the words of `shared/alarms.py`: those that fire, and those of the past by the samples they fired in."""

from collections.abc import Iterable, Mapping

from shared.alarms import BY_NAME
from shared.contracts.admin.console import ActiveAlarm, PastAlarm

SAMPLE_S = 10
MISSED_S = 35  # an alarm that fires again within this time has fired all along
PAST_MAX = 200


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
