"""The part of orders."""

from features.sign_in.users import sign_in_part

PART = sign_in_part("orders", asks_for_places=False)
