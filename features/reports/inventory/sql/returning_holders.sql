-- Holders, those with a hold that ended unpaid, and of these who held again later and who bought later.
WITH fan AS (
    SELECT holder, count(*) AS holds, max(created_at) AS last_held_at,
           min(ended_at) FILTER (WHERE status IN ('expired', 'cancelled')) AS left_at,
           max(created_at) FILTER (WHERE confirmed_at IS NOT NULL) AS last_bought_at
    FROM inventory.reservation
    WHERE event_id = :event_id AND holder <> ''
    GROUP BY holder
)
SELECT coalesce(sum(holds), 0)::bigint AS holds, count(*) AS fans, count(left_at) AS fans_left,
       count(*) FILTER (WHERE last_held_at > left_at) AS returned,
       count(*) FILTER (WHERE last_bought_at > left_at) AS bought
FROM fan
