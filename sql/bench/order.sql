-- $1 id bigint
update outbox.bench_order set changes = changes + 1 where id = $1::bigint
