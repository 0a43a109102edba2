-- Leases this order if it is due and nobody has a lease on it.
UPDATE orders."order"
SET lease = :lease, lease_until = now() + make_interval(secs => :lease_s)
WHERE reference = :reference AND due_at <= now() AND (lease IS NULL OR lease_until < now())
RETURNING reference
