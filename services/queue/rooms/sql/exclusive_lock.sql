-- The exclusive side of the line's fence: nobody writes a batch of places, calls or claims while it is held.
SELECT pg_advisory_xact_lock(hashtextextended('queue ' || :event_id, 0))
