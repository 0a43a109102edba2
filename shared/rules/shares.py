"""Selects a share of fans by a stable hash: a fan is always on the same side, and a larger share only adds fans."""

import hashlib


def within(draw: str, event_id: str, holder: str, percent: float) -> bool:
    """Whether this holder is within the share. Shares with different `draw` names are independent."""
    if percent >= 100:
        return True
    drawn = hashlib.sha256(f"{draw} {event_id} {holder}".encode()).digest()[:8]
    return int.from_bytes(drawn, "big") * 100 < percent * 2**64
