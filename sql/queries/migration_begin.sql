-- Opens the transaction of one migration: alone, and with the table that records it.
begin;
set local search_path = pg_catalog, pg_temp;
set local client_min_messages = warning;
set local lock_timeout = '60s';
do $$
begin
	perform pg_advisory_xact_lock(hashtextextended('outbox.migration', 0));
	if to_regnamespace('outbox') is null then
		create schema outbox;
	end if;
	create table if not exists outbox.migration (
		name text primary key,
		version int not null,           -- its number; 0: repeatable
		checksum text not null,         -- SHA-256 of the file
		oldest_program text not null,   -- that may run on what it made
		program text not null,          -- that applied it
		applied_at timestamptz not null default clock_timestamp(),
		applied_by text not null default session_user
	);
end $$;
