-- Counts one more mail to this recipient today (UTC); no row if there were :mails_max already.
INSERT INTO orders.mail_recipient AS r (recipient, day, mails)
VALUES (:recipient, CAST(now() AT TIME ZONE 'UTC' AS date), 1)
ON CONFLICT (recipient, day) DO UPDATE SET mails = r.mails + 1 WHERE r.mails < CAST(:mails_max AS integer)
RETURNING r.day
