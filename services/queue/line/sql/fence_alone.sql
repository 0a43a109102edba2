-- The exclusive side of the line's fence: no batch is being written while it is held.
SELECT pg_advisory_xact_lock(hashtextextended('queue ' || :event_id, 0))
