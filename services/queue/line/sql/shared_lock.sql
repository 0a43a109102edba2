-- The shared side of the line's fence: a rebuild waits for its holders. The generation is read by the next statement,
-- because this one's snapshot is older than the lock.
SELECT pg_advisory_xact_lock_shared(hashtextextended('queue ' || :event_id, 0))
