-- With a reason, the same transaction adds it to outbox.audit: the id of that row, or null.
-- $1 name text, $2 shards int, $3 'beginning', 'now' or a timestamptz, $4 reason text, $5 caller text
with made as materialized (
	select outbox.publisher_create($1::text, $2::int, $3::text)
), noted as (
	insert into outbox.audit (caller, verb, publisher, target, reason)
	select $5::text, 'publisher create', $1::text, jsonb_build_object('publisher', $1::text, 'shards', $2::int,
		'start', $3::text), $4::text from made where $4::text is not null
	returning id
)
select (select n.id from noted n) from made
