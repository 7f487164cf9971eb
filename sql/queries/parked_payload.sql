-- $1 slot text, $2 id bigint.
select encode(p.payload, 'hex') from outbox.parked p where p.slot = $1::text and p.id = $2::bigint
