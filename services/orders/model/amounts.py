"""Amounts in parts: exact, and rounded as card networks take them. Integers of minor units."""

from collections.abc import Sequence

from shared.rules.currencies import rounded_to


def step_of(currency: str, *amounts_minor: int) -> int:
    """Minor units to which parts of these amounts are rounded."""
    step = rounded_to(currency)
    return 1 if any(minor % step for minor in amounts_minor) else step


def split(amount_minor: int, weights: Sequence[int], step: int = 1) -> list[int]:
    """Splits an amount in proportion to the weights; the parts sum to it exactly (largest remainder method, the first
    of equal remainders), and are multiples of the step if the amount is one. With equal weights it splits a line into
    its tickets.
    """
    if step > 1 and amount_minor % step == 0:
        return [part * step for part in split(amount_minor // step, weights)]
    whole = sum(weights)
    if not whole:
        assert amount_minor == 0, "an amount needs a weight above 0 to be split over"
        return [0] * len(weights)
    parts = [amount_minor * weight // whole for weight in weights]
    largest = sorted(range(len(weights)), key=lambda n: -(amount_minor * weights[n] % whole))
    for n in largest[: amount_minor - sum(parts)]:
        parts[n] += 1
    return parts
