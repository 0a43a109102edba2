-- Marks the place of a holder who bought: by its number if the event names it, otherwise by its holder.
UPDATE queue.place p SET bought_at = coalesce(p.bought_at, clock_timestamp())
WHERE p.event_id = :event_id AND p.ended_at IS NULL AND p.holder = :holder
  AND p.epoch = coalesce(CAST(:epoch AS int), (SELECT r.epoch FROM queue.room r WHERE r.event_id = :event_id))
  AND p.lane = coalesce(CAST(:lane AS int), p.lane)
  AND p.join_seq = coalesce(CAST(nullif(CAST(:join_seq AS bigint), 0) AS bigint), p.join_seq)
RETURNING p.epoch, p.lane, p.join_seq
