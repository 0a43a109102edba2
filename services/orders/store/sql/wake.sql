-- Asks for a look at orders: what is open is due now, what is not is opened for this process. With :sync their charges are
-- read at the provider, with :take they are this process' from now on. Rows are locked in key order, and stay so for the
-- transaction. Returns who owns each, and whether it was closed (a row that was inserted has no `xmax`). The epoch of an
-- order that is opened again is a new one, so that no run that is left from before takes it for the one that it was.
INSERT INTO orders.open_order AS p (reference, event_id, join_seq, owner, epoch, sync_requested, woken)
SELECT o.reference, o.event_id, o.join_seq, :owner, (random() * 1000000000)::integer, :sync, true
FROM orders."order" o
WHERE o.reference = ANY(CAST(:references AS text[])) AND o.status <> 'tombstone'
ORDER BY o.reference
ON CONFLICT (reference) DO UPDATE
SET wakes = p.wakes + 1, woken = true, due_at = clock_timestamp(), sync_requested = p.sync_requested OR :sync,
    owner = CASE WHEN :take THEN excluded.owner ELSE p.owner END, epoch = p.epoch + (:take AND p.owner <> excluded.owner)::integer
RETURNING p.reference, p.owner, p.epoch, p.event_id, p.join_seq, p.xmax = 0 AS was_closed
