"""Ids of reservations: from the holder and the key of a request, or at random."""

from services.inventory.api.reservations import random_id, reservation_id_of_key


def test_two_fans_with_one_key_have_two_reservations() -> None:
    one, other = (reservation_id_of_key("show", holder, "my-key") for holder in ("ann", "ben"))
    assert one != other
    assert one == reservation_id_of_key("show", "ann", "my-key")
    assert one != reservation_id_of_key("another", "ann", "my-key")


def test_ids_of_reservations_cannot_be_guessed() -> None:
    suffixes = {random_id()[12:] for _ in range(600)}  # after the time, from more than one reading of randomness
    assert len(suffixes) == 600
    assert {len(suffix) for suffix in suffixes} == {20}
