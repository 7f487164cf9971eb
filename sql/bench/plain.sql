-- $1 topic text, $2 key text, $3 payload text
insert into outbox.bench_plain (topic, key, payload)
values ($1::text, convert_to($2::text, 'UTF8'), convert_to($3::text, 'UTF8'))
