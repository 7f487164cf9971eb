-- Opens the transaction of one migration: alone, and with the table that records it. Its lock is one that only
-- a role with rights to change that table can hold. When two sessions create the schema at once, the second
-- waits for the first, gets an error, and then uses that schema.
begin;
set local search_path = pg_catalog, pg_temp;
set local client_min_messages = warning;
set local lock_timeout = '60s';
do $$
begin
	begin
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
	exception when unique_violation or duplicate_schema or duplicate_table then
		-- Another session made them. This look locks a catalog, and so takes in what that session committed.
		perform from pg_namespace;
	end;
	lock table outbox.migration in share row exclusive mode;
end $$;
