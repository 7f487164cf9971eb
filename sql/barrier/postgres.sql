-- The barrier of the look-back, for an application on PostgreSQL 11 or newer: docs/guide/lookback-barrier.md
-- is the recipe. Run it in the application's own database, not in the relay's schema. To use another
-- schema than public, replace the word everywhere.
--
-- One row per id. The first insert decides the id: it comes from the business transaction ('commit',
-- visible to others when it commits) or from the answer to the relay ('rollback'). The primary key lets
-- one of them in; the other waits while that one's transaction is open, and then fails.

create table public.lookback_barrier (
	biz_type text collate "C" not null,
	biz_id   text collate "C" not null,
	outcome  text not null
		constraint outcome_is_commit_or_rollback check (outcome in ('commit', 'rollback')),
	at       timestamptz not null default clock_timestamp(),
	primary key (biz_type, biz_id)
);
create index on public.lookback_barrier (at); -- for lookback_forget

-- The first statement of the business transaction. Fails, and so does the transaction, with
--   LB001  the relay received "rollback": the id is over; send a rollback, or nothing
--   LB002  a transaction of this id has committed before: it is done already
--   40001  one of the two happened just now (repeatable read, serializable): roll back, and try again
create function public.lookback_begin(biz_type text, biz_id text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
	found_outcome text;
begin
	-- A row that was read as committed must not vanish in a crash.
	perform set_config('synchronous_commit', 'on', true);
	insert into public.lookback_barrier (biz_type, biz_id, outcome)
	values (lookback_begin.biz_type, lookback_begin.biz_id, 'commit')
	on conflict do nothing;
	if found then
		return;
	end if;
	select b.outcome into found_outcome from public.lookback_barrier b
	where b.biz_type = lookback_begin.biz_type and b.biz_id = lookback_begin.biz_id;
	if found_outcome = 'commit' then
		raise exception 'look-back: % % was committed before', biz_type, biz_id
			using errcode = 'LB002';
	end if;
	raise exception 'look-back: % % can no longer commit, the relay was answered rollback',
		biz_type, biz_id using errcode = 'LB001';
end
$$;

-- The answer to the relay, a row for each id: commit, rollback, or pending (its transaction is open, or
-- another caller answers at this moment). The answer is valid only after the calling transaction has
-- committed: send it then. Calls may be repeated, and may run concurrently.
create function public.lookback_check(biz_type text, biz_ids text[])
returns table (biz_id text, decision text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set lock_timeout = '10ms' as $$
#variable_conflict use_column
declare
	one text;
begin
	-- A "rollback" that the relay received must not vanish in a crash.
	perform set_config('synchronous_commit', 'on', true);
	-- Ids are inserted in one order, so that two calls cannot deadlock.
	for one in select distinct i.id collate "C" from unnest(biz_ids) i (id) where i.id is not null
		order by 1
	loop
		biz_id := one;
		begin
			insert into public.lookback_barrier (biz_type, biz_id, outcome)
			values (lookback_check.biz_type, one, 'rollback')
			on conflict do nothing;
			select b.outcome into decision from public.lookback_barrier b
			where b.biz_type = lookback_check.biz_type and b.biz_id = one;
		exception when lock_not_available then
			decision := 'pending';
		end;
		return next;
	end loop;
end
$$;

-- Deletes older rows, at most that many; call it until it returns 0. Without its row, the answer for a
-- committed id is "rollback": keep rows for longer than the relay may ask.
create function public.lookback_forget(older_than interval, most int default 10000) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
	gone int;
begin
	if older_than < interval '1 day' then
		raise exception 'rows of less than a day are kept, and % is less', older_than
			using errcode = 'invalid_parameter_value';
	end if;
	delete from public.lookback_barrier b using (
		select o.biz_type, o.biz_id from public.lookback_barrier o
		where o.at < clock_timestamp() - older_than
		order by o.at limit most for update skip locked) old
	where b.biz_type = old.biz_type and b.biz_id = old.biz_id;
	get diagnostics gone = row_count;
	return gone;
end
$$;

revoke execute on function public.lookback_begin(text, text), public.lookback_check(text, text[]),
	public.lookback_forget(interval, int) from public;
-- The application's role, and that of the [check] section's dsn (or of the service that answers):
--   grant execute on function public.lookback_begin(text, text) to shop;
--   grant execute on function public.lookback_check(text, text[]) to outbox_checker;
