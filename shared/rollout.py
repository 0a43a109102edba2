"""Rollout by stable hash: the same holder is always on the same side, and raising the share only adds to it."""

import hashlib


def outside(event_id: str, holder: str, percent: float) -> bool:
    """Whether this holder is outside the share of fans who go through the room."""
    if percent >= 100:
        return False
    drawn = hashlib.sha256(f"rollout {event_id} {holder}".encode()).digest()[:8]
    return int.from_bytes(drawn, "big") * 100 >= percent * 2**64
