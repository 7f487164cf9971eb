-- The table that the bench compares outbox.processed_take with.
create table outbox.bench_processed (
	name text not null,
	id bytea not null,
	record_at timestamptz not null,
	unique (name, id)
)
