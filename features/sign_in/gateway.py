"""The part of gateway."""

from features.sign_in.users import sign_in_part

PART = sign_in_part("gateway")
