-- name: take_lease
-- Take or renew the lease; a new holder gets the next token, and no row comes back while another holds it. One that ends
-- later than two terms from now was taken before the clock stepped back, and has ended.
INSERT INTO weir.alert_leases AS l (name, holder, token, expires_at_ms)
VALUES (%(name)s, %(holder)s, 1, %(expires_at_ms)s)
ON CONFLICT (name) DO UPDATE SET
    token = CASE WHEN l.holder = EXCLUDED.holder THEN l.token ELSE l.token + 1 END,
    holder = EXCLUDED.holder,
    expires_at_ms = EXCLUDED.expires_at_ms
WHERE l.holder = EXCLUDED.holder OR l.expires_at_ms <= %(now_ms)s
    OR l.expires_at_ms - EXCLUDED.expires_at_ms > EXCLUDED.expires_at_ms - %(now_ms)s
RETURNING token;

-- name: fence
-- Lock the lease for this transaction if it is still held under this token.
SELECT token FROM weir.alert_leases WHERE name = %(name)s AND token = %(token)s FOR UPDATE;

-- name: note_evaluation
-- Store when the last evaluation began and how long it took.
UPDATE weir.alert_leases SET evaluated_at_ms = %(now_ms)s, took_ms = %(took_ms)s
WHERE name = %(name)s AND token = %(token)s;

-- name: release_lease
-- End the lease, so that another process can take it at once.
UPDATE weir.alert_leases SET expires_at_ms = 0 WHERE name = %(name)s AND token = %(token)s;

-- name: show_lease
-- The holder of the lease, and when the last evaluation began.
SELECT holder, token, expires_at_ms, evaluated_at_ms, took_ms FROM weir.alert_leases WHERE name = %(name)s;
