-- $1 name text, $2 shards int, $3 'beginning', 'now' or a timestamptz
select outbox.publisher_create($1::text, $2::int, $3::text)
