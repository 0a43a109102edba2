-- How many calls each lane of the room was given so far.
SELECT lane, calls, contended_calls, fair_share, contention_periods
FROM queue.lane WHERE event_id = :event_id AND epoch = :epoch ORDER BY lane
