WITH free AS MATERIALIZED (
    SELECT unit_id FROM {0}.unit WHERE section_id = $1 AND unit_id >= $4 AND hold_id IS NULL
    ORDER BY unit_id LIMIT $2::int FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE {0}.unit u SET hold_id = $3 FROM free
    WHERE u.section_id = $1 AND u.unit_id = free.unit_id AND (SELECT count(*) FROM free) = $2::int
    RETURNING u.unit_id
)
INSERT INTO {0}.hold SELECT $3, $1, $2::int, now() + interval '{1} s'
WHERE (SELECT count(*) FROM taken) = $2::int
