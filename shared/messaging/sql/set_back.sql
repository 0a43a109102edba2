-- Moves the relay's cursor back by so many seconds of events, counted from the last one before it, to a row that exists or to the
-- beginning. Returns where it was and is.
UPDATE {schema}.outbox_cursor AS c SET id = least(was.id, (
    SELECT coalesce(max(b.id), 0) FROM {schema}.outbox_batch b WHERE b.id <= was.id AND b.written_at < (
        SELECT l.written_at FROM {schema}.outbox_batch l WHERE l.id <= was.id ORDER BY l.id DESC LIMIT 1
    ) - interval '{seconds} seconds'))
FROM {schema}.outbox_cursor AS was WHERE was.name = c.name AND c.name = 'relay'
RETURNING was.id AS before, c.id AS now
