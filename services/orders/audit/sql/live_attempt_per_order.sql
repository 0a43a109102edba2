-- Orders with more than one live attempt.
SELECT o.reference FROM orders."order" o
WHERE o.event_id = :event_id AND 1 < (
    SELECT count(*) FROM jsonb_array_elements(o.attempts) AS attempt
    WHERE attempt ->> 'status' IN ('created', 'unknown', 'requires_action', 'processing', 'authorised'))
