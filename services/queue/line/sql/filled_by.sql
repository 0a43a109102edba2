-- One row if the engine has not been filled anew since, nor the room reset. Run under the fence.
SELECT 1 FROM queue.room WHERE event_id = :event_id AND epoch = :epoch AND fill = :fill
