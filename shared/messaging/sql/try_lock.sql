-- Takes the relay's lock, if no other process has it, until the transaction ends. It needs no transaction id, for which the
-- relays of other services would wait. If this process falls silent, the server ends the transaction and frees the lock.
-- A move of the cursor that a crash loses is a repetition, so its commit waits for no disk.
SELECT pg_try_advisory_xact_lock(hashtext('onsale relay {schema}')) AS is_ours,
       set_config('idle_in_transaction_session_timeout', CAST(:lock_ms AS text), true),
       set_config('synchronous_commit', 'off', true)
