-- A reader that keeps its snapshot.
begin isolation level repeatable read;
select count(*) from outbox.bench_order;
