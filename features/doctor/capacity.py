"""What a machine has left: free disk and file descriptors."""

from shared.contracts.admin.checks import Check, broken, ok, suspicious
from shared.runtime.descriptors import ENOUGH, descriptors_max, descriptors_open, descriptors_spare

FREE_MIN_BYTES, FREE_MIN_SHARE = 1 << 30, 0.05
FREE_GOOD_BYTES, FREE_GOOD_SHARE = 5 << 30, 0.15
RAISE_LIMIT = "Raise the limit of open files: `ulimit -n 65536`, LimitNOFILE= of the unit, or the container's."


def readable_size(size: float) -> str:
    """A number of bytes as people read it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}" if unit != "bytes" else f"{size:.0f} bytes"
        size /= 1024
    return f"{size:.1f} TiB"


def disk_check(subject: str, free: int, total: int, *, more: str = "") -> Check:
    """Free space against the least that a sale needs: as share of the disk, and at least some gigabytes."""
    found = f"{readable_size(free)} free of {readable_size(total)}{more}"
    if free < FREE_MIN_BYTES or free < FREE_MIN_SHARE * total:
        return broken(subject, found, "A full disk stops every sale: free some, or enlarge it.")
    if free < FREE_GOOD_BYTES or free < FREE_GOOD_SHARE * total:
        return suspicious(subject, found, "Free some before the sale, or enlarge the disk.")
    return ok(subject, found)


def descriptors_check() -> Check:
    """The limit of this process against what is open now."""
    subject, limit, opened = "Open files", descriptors_max(), descriptors_open()
    usable = limit - descriptors_spare()
    found = f"{limit} allowed" if opened is None else f"{opened / limit:.0%} of {limit} in use"
    if opened is not None and opened >= usable:
        return broken(subject, found, f"New connections are refused. {RAISE_LIMIT}")
    if limit < ENOUGH:
        return suspicious(subject, found, RAISE_LIMIT)
    return ok(subject, found)
