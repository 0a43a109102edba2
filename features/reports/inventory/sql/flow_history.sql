-- Holds begun, sold and ended unsold in each step of time since :start; and why places were released in the whole sale:
-- reservations by reason, most of them first (`json` keeps the order).
WITH steps AS (
    SELECT floor(date_part('epoch', happened.at - CAST(:start AS timestamptz)) / :step_s)::bigint AS step,
        count(*) FILTER (WHERE happened.what = 'held') AS held, count(*) FILTER (WHERE happened.what = 'confirmed') AS confirmed,
        count(*) FILTER (WHERE happened.what = 'expired') AS expired, count(*) FILTER (WHERE happened.what = 'cancelled') AS cancelled
    FROM inventory.reservation r CROSS JOIN LATERAL (
        VALUES ('held', r.created_at), ('confirmed', r.confirmed_at), (r.status, r.ended_at)
    ) AS happened (what, at)
    WHERE r.event_id = :event_id AND happened.at IS NOT NULL AND happened.at >= :start
        AND happened.at < CAST(:start AS timestamptz) + make_interval(secs => :step_s * :steps)
    GROUP BY 1 ORDER BY 1
), released AS (
    SELECT reason, count(DISTINCT reservation_id COLLATE "C") AS reservations
    FROM inventory.release_log WHERE event_id = :event_id GROUP BY reason ORDER BY 2 DESC, 1
)
SELECT (SELECT coalesce(jsonb_agg(steps), '[]') FROM steps) AS steps,
    (SELECT coalesce(json_object_agg(reason, reservations), '{}') FROM released) AS released
