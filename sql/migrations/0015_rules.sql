-- oldest-program: 0.1.0
--
-- Records of rules that limit how many messages of a key may come (outbox/rules.h): the store
-- `postgres`. A row has the admitted messages of one key of one rule: their times, in milliseconds since
-- 1970, and a mark that identifies each.
--
-- The row is its own lock. rules_judge first makes and locks the rows of all keys of its messages, in
-- the order of their keys, so that two calls with common keys wait for each other and do not deadlock.
-- Each later statement has a snapshot that is newer than these locks, and sees all that the call before
-- has recorded. That holds only in READ COMMITTED.
--
-- kept_until is rounded up to an hour. So it seldom changes, and an update of the row need not touch
-- the index (HOT).

create table outbox.rule_record (
	name       outbox.processed_name not null,
	key        bytea not null,
	times      bigint[] not null default '{}',
	marks      bigint[] not null default '{}',
	kept_until timestamptz not null,
	primary key (key, name)
) with (fillfactor = 50);

create index on outbox.rule_record (kept_until);

comment on table outbox.rule_record is 'Admitted messages of each key of a rule, for rules that processes share.';
comment on column outbox.rule_record.name is 'Name of the store.';
comment on column outbox.rule_record.key is 'Hash of the rule, and of the message''s key for it.';
comment on column outbox.rule_record.times is 'Times of the admitted messages, in milliseconds since 1970.';
comment on column outbox.rule_record.marks is 'A number that identifies each of these messages.';
comment on column outbox.rule_record.kept_until is 'Time after which the row no longer matters.';

create function outbox.rules_guard(of_name text) returns void language plpgsql as $$
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'rules are judged in READ COMMITTED transactions only' using
			errcode = 'invalid_transaction_state',
			hint = 'at any other level what was recorded during the wait for a row is not seen';
	end if;
	perform outbox.consumer_check(of_name);
end $$;

-- Makes and locks the rows. A row that another call has removed in between is made once more.
create function outbox.rules_lock(of_name text, of_keys bytea[]) returns void language plpgsql
	set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
	wanted bytea[] := array(select distinct k.key from unnest(of_keys) as k (key) order by k.key);
	locked int := -1;
begin
	while locked <> cardinality(wanted) loop
		insert into outbox.rule_record (name, key, kept_until)
		select of_name, k.key, clock_timestamp() + interval '1 hour'
		from unnest(wanted) with ordinality as k (key, n) order by k.n
		on conflict do nothing;

		perform from outbox.rule_record r
		where r.key = any(wanted) and r.name = of_name order by r.key for update;
		get diagnostics locked = row_count;
	end loop;
end $$;

-- Would one more message be too many? within 0: at most `most` in the pieces together, each from its
-- begin to before its end. Otherwise at most `most` in each interval of that length.
create function outbox.rules_exceeds(times bigint[], at bigint, most bigint, within bigint,
	begins bigint[], ends bigint[]) returns boolean immutable parallel safe language plpgsql
	set search_path = pg_catalog, pg_temp as $$
declare
	near bigint[];
begin
	if cardinality(times) < most then
		return false;
	elsif within = 0 then
		return most <= (select count(*) from unnest(times) as t (at)
			where exists (select from unnest(begins, ends) as p (b, e) where t.at >= p.b and t.at < p.e));
	end if;
	near := array(select t.at from unnest(times) as t (at)
		where t.at > rules_exceeds.at - within and t.at < rules_exceeds.at + within order by t.at);
	return exists (select from generate_series(1, cardinality(near) - most + 1) as i (n)
			where greatest(near[i.n + most - 1], at) - least(near[i.n], at) < within);
end $$;

-- Judges messages in their order. Message i has the time at[i], the mark marks[i], and the next
-- counts[i] of the parts; a part is a rule that has a key for the message, with four pieces each. Returns for
-- each message "again" if it was recorded before, or for each of its parts 1 if it is exceeded, else 0. A
-- message that no refusing part exceeds is recorded with all of its parts.
create function outbox.rules_judge(name text, at bigint[], marks bigint[], counts bigint[],
	keys bytea[], refuses bigint[], most bigint[], within bigint[], oldest bigint[], live_ms bigint[],
	begins bigint[], ends bigint[]) returns text[] language plpgsql security definer
	set search_path = pg_catalog, pg_temp set row_security = off set enable_seqscan = off set jit = off as $$
declare
	verdicts text[] := '{}';
	part int := 0;
	v_times bigint[];
	known bigint[];
	bits text;
	again boolean;
	refused boolean;
	beyond boolean;
begin
	perform outbox.rules_guard(name);
	perform outbox.rules_lock(name, keys);
	for i in 1 .. cardinality(at) loop
		bits := '';
		again := exists (select from outbox.rule_record r
			where r.key = any(keys[part + 1 : part + counts[i]]) and r.name = rules_judge.name
				and rules_judge.marks[i] = any(r.marks));
		refused := false;
		for p in part + 1 .. part + counts[i] loop
			exit when again;
			select r.times into v_times from outbox.rule_record r
			where r.key = keys[p] and r.name = rules_judge.name;
			beyond := outbox.rules_exceeds(v_times, at[i], most[p], within[p],
				begins[4 * p - 3 : 4 * p], ends[4 * p - 3 : 4 * p]);
			bits := bits || case when beyond then '1' else '0' end;
			refused := refused or (beyond and refuses[p] = 1);
		end loop;
		for p in part + 1 .. part + counts[i] loop
			exit when refused;
			select array_agg(o.at), array_agg(o.mark) into v_times, known
			from outbox.rule_record r
			cross join lateral unnest(r.times || rules_judge.at[i], r.marks || rules_judge.marks[i])
				with ordinality as o (at, mark, n)
			where r.key = keys[p] and r.name = rules_judge.name and o.at >= oldest[p]
				-- an early message has another time now
				and (o.mark <> rules_judge.marks[i] or o.n = array_position(
					r.marks || rules_judge.marks[i], rules_judge.marks[i]));
			update outbox.rule_record r
			set times = coalesce(v_times, '{}'), marks = coalesce(known, '{}'),
				kept_until = greatest(r.kept_until, date_trunc('hour',
					clock_timestamp() + live_ms[p] * interval '1 ms') + interval '1 hour')
			where r.key = keys[p] and r.name = rules_judge.name;
		end loop;
		verdicts := verdicts || case when again then 'again' else bits end;
		part := part + counts[i];
	end loop;

	-- Last, so that no row is waited for: rows of keys that come no more.
	delete from outbox.rule_record r where r.ctid = any(array(
		select d.ctid from outbox.rule_record d where d.kept_until < clock_timestamp()
		limit 2 * cardinality(keys) for update skip locked));
	return verdicts;
end $$;
comment on function outbox.rules_judge(text, bigint[], bigint[], bigint[], bytea[], bigint[], bigint[], bigint[],
	bigint[], bigint[], bigint[], bigint[]) is 'Judges messages by rules, and records those that pass. The store '
	'`postgres` of rules calls it.';

revoke execute on function outbox.rules_judge(text, bigint[], bigint[], bigint[], bytea[], bigint[], bigint[],
	bigint[], bigint[], bigint[], bigint[], bigint[]) from public;
