-- One row if Redis has not been rebuilt and the room not been reset since this generation. Run under the fence.
SELECT 1 FROM queue.room WHERE event_id = :event_id AND epoch = :epoch AND generation = :generation
