-- $1 name text, $2 ids bytea[], $3 times timestamptz[]
insert into outbox.bench_processed (name, id, record_at)
select $1::text, i.id, i.record_at from unnest($2::bytea[], $3::timestamptz[]) as i (id, record_at)
