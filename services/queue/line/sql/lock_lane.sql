-- Locks a lane's row: batches that are numbered by the database wait for each other here.
SELECT lane FROM queue.lane WHERE event_id = :event_id AND epoch = :epoch AND lane = :lane FOR UPDATE
