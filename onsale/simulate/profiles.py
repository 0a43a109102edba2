"""Behaviour profiles of fans: shares between 0 and 1, and payment methods by weight."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`patience_s` is how long a payment may stay open before the fan cancels; without it no fan does."""

    methods: Mapping[str, int]
    leaves_line: float
    leaves_hold: float
    repeats_hold: float
    cancels: float = 0.0
    payments_max: int = 2
    patience_s: float | None = None
    page: Mapping[str, int]


CALM = Profile(
    methods={"ok": 84, "decline": 4, "slow": 3, "error_then_ok": 4, "duplicate_webhooks": 5},
    leaves_line=0.02,
    leaves_hold=0.03,
    repeats_hold=0.1,
    page={"pay": 1},
)
WILD = Profile(
    methods={
        "ok": 10, "decline": 10, "slow": 8, "timeout_after_success": 4, "error_then_ok": 10, "duplicate_webhooks": 10,
        "reordered_webhooks": 10, "late_success": 10, "success_after_cancel": 8, "double_success": 10,
        "refund_fails_once": 10, "redirect": 10,
    },
    leaves_line=0.01,
    leaves_hold=0.02,
    repeats_hold=0.4,
    cancels=0.15,
    payments_max=3,
    patience_s=8.0,
    page={"pay": 6, "decline": 2, "cancel": 1, "": 1},
)  # fmt: skip
