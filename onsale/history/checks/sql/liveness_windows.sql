-- The shortest liveness window that each room ever had.
SELECT r.event_id, 1000 * least(r.liveness_window_s, (
    SELECT min(CAST(a.after ->> 'liveness_window_s' AS int)) FROM queue.audit_log a
    WHERE a.subject = 'event:' || r.event_id AND a.after ? 'liveness_window_s')) AS window_ms
FROM queue.room r
