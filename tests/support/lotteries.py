"""A correctly published lottery with 200 entrants, and the proofs of its entrants."""

from datetime import UTC, datetime, timedelta
from typing import Any

from shared.contracts.lottery import EntryProof, PublishedLottery
from shared.rules.lottery_ranking import commitment, leaf, path, receipt, root

SEED, BLIND, VALUE = b"s" * 32, b"b" * 32, "24,331.09"
NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
LEAVES = [leaf(0, entry, receipt(BLIND, 0, entry, f"fan-{entry}")) for entry in range(1, 201)]


def published(**changes: Any) -> PublishedLottery:
    """A correct lottery with 200 entrants; `changes` replace published facts."""
    facts = {
        "event_id": "show", "epoch": 1, "stage": "drawn", "commitment": commitment(SEED),
        "committed_at": NOON - timedelta(days=3), "queue_opens_at": NOON - timedelta(hours=2),
        "rules": {"entry_closes_at": NOON, "public_value": {"what": "an index", "known_at": NOON + timedelta(hours=1)}},
        "closed_at": NOON + timedelta(seconds=1), "counted_at": NOON + timedelta(seconds=3),
        "entrants": {0: {"n": 200, "taken": 200, "hash": root(LEAVES).hex()}},
        "public_value": VALUE, "seed": SEED.hex(), "drawn_at": NOON + timedelta(hours=1, minutes=2),
    }  # fmt: skip
    return PublishedLottery.model_validate({**facts, **changes})


def proof(entry: int, **changes: Any) -> EntryProof:
    entry_receipt = receipt(BLIND, 0, entry, f"fan-{entry}")
    facts = {"event_id": "show", "epoch": 1, "lane": 0, "entry": entry, "entrants_n": 200, "receipt": entry_receipt,
             "path": path(LEAVES, entry - 1)}  # fmt: skip
    return EntryProof.model_validate({**facts, **changes})
