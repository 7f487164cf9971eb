-- $1 topic text, $2 key text, $3 payload text
select outbox.publish($1::text, $2::text, $3::text, unique_key => gen_random_uuid()::text)
