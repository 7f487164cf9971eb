-- $1 publisher text, $2 id bigint.
select encode(p.payload, 'hex') from outbox.parked p where p.publisher = $1::text and p.id = $2::bigint
