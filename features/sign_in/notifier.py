"""The part of notifier."""

from features.sign_in.users import sign_in_part

PART = sign_in_part("notifier")
