"""The part of inventory."""

from features.sign_in.users import sign_in_part

PART = sign_in_part("inventory")
