"""How the console paces itself: the times and sizes that no operator needs to turn, and that tests shorten."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The same for every event."""

    heartbeat_s: float = 15.0  # how often a stream gets a comment
    rehearsal_max_s: float = 3600.0  # how long a rehearsal may take; then it is stopped and its copy is closed
    watcher_messages_max: int = 64  # a stream that leaves this many messages unread is cut
    answer_max_s: float = 2.5  # how long a service may take to answer a question
    audit_interval_s: float = 30.0  # how often the invariants are checked
    changes_interval_s: float = 2.0  # how often the room and operators' changes are read


DEFAULTS = Tuning()
