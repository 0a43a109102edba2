-- An event's seats after the one that was read last, with what stands on them.
SELECT section_id, position, row, coalesce(label, CAST(number AS text)) AS label, status, allotment_id, reservation_id
FROM inventory.seat
WHERE (event_id, section_id, position) > (:event_id, :section_id, :position) AND event_id <= :event_id
ORDER BY event_id, section_id, position LIMIT :count_max
