-- What each lane of the room was given of the calls so far.
SELECT lane, calls, contested, due, contests FROM queue.lane WHERE event_id = :event_id AND epoch = :epoch ORDER BY lane
