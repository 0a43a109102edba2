"""E-mail about orders and holds: content, dispatch, reminders, opt-outs."""
