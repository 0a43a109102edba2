"""What only the notifier checks: whether its limit of open files is enough for the streams it allows."""

from features.doctor.capacity import RAISE_LIMIT
from features.doctor.process import doctor_part
from services.notifier.settings import Settings
from shared.contracts.admin.checks import Check, ok, suspicious
from shared.runtime.descriptors import descriptors_max, descriptors_spare


def own_checks(settings: Settings) -> list[Check]:
    """Each stream is an open file; when they run out, new streams are refused, and those fans poll instead."""
    subject, usable = "Streams", descriptors_max() - descriptors_spare()
    if usable < settings.streams_max:
        found = f"{settings.streams_max} are allowed at a process, and open files are enough for {usable}"
        return [suspicious(subject, found, RAISE_LIMIT)]
    return [ok(subject, f"{settings.streams_max} at a process")]


PART = doctor_part("notifier", own_checks)
