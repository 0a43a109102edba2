-- Opens an oversell case, unless one is open for this place.
INSERT INTO inventory.oversell (event_id, section_id, position, excess, percent, policy, status, from_buffer,
overbooked, ended_at) VALUES (:event_id, :section_id, :position, :excess, :percent, :policy,
CAST(:status AS text), :from_buffer, :overbooked, CASE WHEN :status = 'honoured' THEN clock_timestamp() END)
ON CONFLICT (event_id, section_id, position) WHERE status IN ('waiting', 'cancelling') DO NOTHING RETURNING id
