-- A rebuild waits for every taking batch that is under way, and lets none begin.
SELECT pg_advisory_xact_lock(hashtextextended('inventory gate ' || :event_id, 0))
