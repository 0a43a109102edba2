"""New streams are rejected before the memory runs out; one late probe is no shortage."""

from services.notifier.headroom import MIB, Headroom
from services.notifier.tuning import Tuning


def test_too_little_memory_rejects_new_streams() -> None:
    headroom = Headroom(tuning := Tuning())
    least = tuning.memory_free_min_mib * MIB
    for free_bytes, shortage in ((None, None), (least, None), (least - 1, "memory")):
        headroom._free_bytes = free_bytes
        assert headroom.shortage(0.0) == shortage
