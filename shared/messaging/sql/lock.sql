-- Takes the relay's lock until the transaction ends, after whoever publishes a batch just now.
SELECT pg_advisory_xact_lock(hashtext('onsale relay {schema}'))
