"""Shares of fans by stable hash: the same holder is always on the same side, and raising a share only adds to it."""

import hashlib


def within(draw: str, event_id: str, holder: str, percent: float) -> bool:
    """Whether this holder is within the share. Each `draw` has its own luck: who is in one says nothing of another."""
    if percent >= 100:
        return True
    drawn = hashlib.sha256(f"{draw} {event_id} {holder}".encode()).digest()[:8]
    return int.from_bytes(drawn, "big") * 100 < percent * 2**64


def outside(event_id: str, holder: str, percent: float) -> bool:
    """Whether this holder is outside the share of fans who go through the room."""
    return not within("rollout", event_id, holder, percent)
