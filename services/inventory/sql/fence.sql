-- Taking shares this lock; a rebuild takes it alone. The epoch is read in a statement after this one.
SELECT pg_advisory_xact_lock_shared(hashtextextended('inventory gate ' || :event_id, 0))
