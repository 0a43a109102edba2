"""Times and waits in the words of a language, as the pages' scripts write them (`web/fans/format.js`)."""

import math
from datetime import UTC, datetime

from babel import Locale
from babel.numbers import format_decimal

from shared.runtime.clock import zone_of
from shared.words.words import Words

NINETY_MINUTES, DAY_AND_A_HALF_H = 90, 36


def moment(text: Words, at: datetime, zone: str) -> str:
    """Date and time at the venue, with the name of its time zone."""
    return text.moment(at.astimezone(zone_of(zone)))


def remaining(text: Words, seconds: float) -> str:
    """A countdown: 4:07, 1:02:09, 3 days 4 h."""
    left, locale = max(0, math.ceil(seconds)), Locale.parse(text("locale"), sep="-")
    days, hours, minutes = left // 86_400, left // 3_600 % 24, left // 60 % 60
    two = [format_decimal(number, "00", locale=locale) for number in (minutes, left % 60)]
    if days > 0:
        return text("countdown_days", n=days, hours=hours)
    if hours > 0:
        return f"{format_decimal(hours, locale=locale)}:{two[0]}:{two[1]}"
    return f"{format_decimal(minutes, locale=locale)}:{two[1]}"


def seconds_until(at: str) -> float:
    """Seconds from now until a time in RFC 3339; negative once it has passed."""
    return (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds()


def wait(text: Words, seconds: float) -> str:
    """An estimate, rounded up."""
    if seconds < 45:
        return text("wait_less")
    minutes = math.ceil(seconds / 60)
    if minutes < NINETY_MINUTES:
        return text("wait_minutes", n=minutes)
    hours = round(minutes / 60)
    return text("wait_hours", n=hours) if hours < DAY_AND_A_HALF_H else text("wait_over_a_day")


def wait_between(text: Words, low_s: int, high_s: int | None) -> str:
    """A range of waits; one value if both read the same, and without an upper bound only the lower one."""
    if high_s is None:
        return text("wait_over_hours", n=low_s // 3600)
    least, most = max(1, low_s // 60), math.ceil(high_s / 60)
    if most > NINETY_MINUTES or least >= most:
        return wait(text, high_s)
    return text("wait_range", **{"from": least, "n": most})
