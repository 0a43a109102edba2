-- Seconds from hold to payment begun, to confirmed, and to payment begun of those who bought: how many, percentiles (on
-- the line without a bucket), and how many in each bucket between the edges.
WITH timed AS (
    SELECT step.name, step.after_s, width_bucket(step.after_s, CAST(:edges_s AS float8[])) AS bucket,
           r.extended OR step.after_s >= 0.9 * r.hold_ttl_s AS late
    FROM inventory.reservation r
    CROSS JOIN LATERAL (VALUES
        ('payment_begun', CAST(extract(epoch FROM r.payment_begun_at - r.created_at) AS float8)),
        ('confirmed', CAST(extract(epoch FROM r.confirmed_at - r.created_at) AS float8)),
        ('bought', CASE WHEN r.confirmed_at IS NOT NULL
                   THEN CAST(extract(epoch FROM r.payment_begun_at - r.created_at) AS float8) END)
    ) AS step (name, after_s)
    WHERE r.event_id = :event_id AND (r.payment_begun_at IS NOT NULL OR r.confirmed_at IS NOT NULL)
      AND step.after_s IS NOT NULL
)
SELECT name, bucket, count(*) AS holds, count(*) FILTER (WHERE late) AS late,
       percentile_disc(CAST(:shares AS float8[])) WITHIN GROUP (ORDER BY after_s) AS percentiles_s
FROM timed
GROUP BY GROUPING SETS ((name), (name, bucket))
ORDER BY name, bucket
