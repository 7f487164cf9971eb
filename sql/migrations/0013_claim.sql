-- oldest-program: 0.1.0
--
-- Claims: a lease on an id while it is handled, so that only one of several consumers works on it
-- (outbox/claims.h). A row is a claim until expires_at by the server's clock, and void after that; it is
-- removed when the claim is released, or an hour after it has expired.
--
-- A claim's token is larger than that of any claim of the id before, so that the target of a write can
-- refuse a holder that was paused for longer than the lease and does not know it yet. It is the time in
-- microseconds, made to rise by a sequence: so it does even when a promoted standby has lost the last
-- values, unless the clocks of the two are further apart than the promotion takes.
--
-- expires_at is in no index, so that a renewal need not touch one (HOT).

create table outbox.claim (
	name       outbox.processed_name not null,
	id         outbox.processed_id not null,
	token      bigint not null,
	expires_at timestamptz not null,
	primary key (id, name)
) with (fillfactor = 50);

comment on table outbox.claim is 'Leases on ids while consumers handle them.';
comment on column outbox.claim.name is 'Name of the consumer.';
comment on column outbox.claim.id is 'Claimed id.';
comment on column outbox.claim.token is 'Fencing token: larger with each claim of the id.';
comment on column outbox.claim.expires_at is 'End of the lease by the server''s clock.';

create sequence outbox.claim_token as bigint;

-- Fails unless the caller may use the name and the lease.
create function outbox.claim_guard(name text, lease interval) returns void language plpgsql as $$
begin
	perform outbox.consumer_check(name);
	if lease > interval '1 day' then
		raise exception 'a lease ends after one day at most, and not after %', lease
			using errcode = 'invalid_parameter_value';
	end if;
end $$;

create function outbox.claim_next_token() returns bigint language sql
	set search_path = pg_catalog, pg_temp as $$
	select setval('outbox.claim_token', greatest(nextval('outbox.claim_token'),
		(extract(epoch from clock_timestamp()) * 1000000)::bigint)) $$;

-- For each id, in order: its claim's token; null: another holder has the id. If an id comes twice in
-- the call, only the first one is claimed. Waits only while another call takes, renews, releases or removes one
-- of the ids; all callers lock rows in the order of their keys.
--
-- The token is made after the call has all its rows: while it waits for one, another consumer may claim and
-- release an id of it, and the token of that claim must be the smaller one. The ids share the token, since
-- tokens of one id only are compared.
create function outbox.claim_take_many(name text, ids bytea[], lease interval) returns bigint[]
	language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
	mine bytea[];
	next bigint;
	tokens bigint[];
begin
	perform outbox.claim_guard(name, lease);
	with wanted as (
		select distinct w.id from unnest(ids) as w (id)
	), taken as (
		insert into outbox.claim as c (name, id, token, expires_at)
		select claim_take_many.name, w.id, 0, clock_timestamp() + lease from wanted w order by w.id
		on conflict on constraint claim_pkey do update set expires_at = clock_timestamp() + lease
			where c.expires_at <= clock_timestamp()
		returning c.id
	)
	select array_agg(t.id) into mine from taken t;

	if mine is null then
		return array_fill(null::bigint, array[cardinality(ids)]);
	end if;

	next := outbox.claim_next_token();
	with wanted as (
		select w.id, min(w.n) as n from unnest(ids) with ordinality as w (id, n) group by w.id
	), given as (
		update outbox.claim c set token = greatest(next, c.token + 1)
		where c.name = claim_take_many.name and c.id = any(mine) returning c.id, c.token
	)
	select array_agg(g.token order by u.n) into tokens
	from unnest(ids) with ordinality as u (id, n)
	left join wanted w on w.n = u.n left join given g on g.id = w.id;
	return tokens;
end $$;
comment on function outbox.claim_take_many(text, bytea[], interval) is 'Claims ids for the duration of the lease, at '
	'most one day. Returns for each id, in order, the fencing token, or null if another holder has the id or it '
	'came before in the call.';

-- Returns the claim's token; null: another holder has the id.
create function outbox.claim_take(name text, id bytea, lease interval) returns bigint
	language sql security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
	select (outbox.claim_take_many(claim_take.name, array[claim_take.id], claim_take.lease))[1] $$;
comment on function outbox.claim_take(text, bytea, interval) is 'Claims an id for the duration of the lease, at most '
	'one day. Returns the fencing token, or null if another holder has the id.';

-- For each claim, in order: was it still held, and is it now held for a whole lease? Removes abandoned
-- claims. All callers lock rows in the order of their keys.
create function outbox.claim_renew(name text, ids bytea[], tokens bigint[], lease interval)
	returns boolean[] language plpgsql security definer set search_path = pg_catalog, pg_temp
	set row_security = off as $$
declare
	held bytea[];
begin
	perform outbox.claim_guard(name, lease);
	with mine as (
		select c.id from outbox.claim c join unnest(ids, tokens) as w (id, token) on c.id = w.id
		where c.name = claim_renew.name and c.token = w.token and c.expires_at > clock_timestamp()
		order by c.id for update of c
	), renewed as (
		update outbox.claim c set expires_at = clock_timestamp() + lease
		from mine m where c.name = claim_renew.name and c.id = m.id returning c.id
	)
	select array_agg(r.id) into held from renewed r;

	-- Last, since this call waits for no lock after it. So it cannot be in a deadlock with a call that waits for an
	-- abandoned claim.
	delete from outbox.claim c where c.ctid in (
		select a.ctid from outbox.claim a where a.expires_at < clock_timestamp() - interval '1 hour'
		for update skip locked);

	return array(select w.id = any(coalesce(held, '{}'))
		from unnest(ids) with ordinality as w (id, n) order by w.n);
end $$;
comment on function outbox.claim_renew(text, bytea[], bigint[], interval) is 'Renews claims for a whole lease. '
	'Returns for each claim, in order, whether it was still held and is now renewed.';

-- Releases the claims. For each, in order: was it still held?
create function outbox.claim_release_many(name text, ids bytea[], tokens bigint[]) returns boolean[]
	language sql security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
	select outbox.claim_guard(claim_release_many.name, null);
	with mine as (
		select c.id, c.token, c.expires_at > clock_timestamp() as held
		from outbox.claim c join unnest(ids, tokens) as w (id, token) on c.id = w.id and c.token = w.token
		where c.name = claim_release_many.name
		order by c.id for update of c
	), gone as (
		delete from outbox.claim c using mine m
		where c.name = claim_release_many.name and c.id = m.id and c.token = m.token
	)
	select coalesce(array_agg(coalesce(m.held, false) order by u.n), '{}')
	from unnest(ids, tokens) with ordinality as u (id, token, n)
	left join mine m on m.id = u.id and m.token = u.token $$;
comment on function outbox.claim_release_many(text, bytea[], bigint[]) is 'Releases claims. Returns for each, in '
	'order, whether it was still held.';

-- Releases the claim. Was it still held?
create function outbox.claim_release(name text, id bytea, token bigint) returns boolean
	language sql security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
	select (outbox.claim_release_many(claim_release.name, array[claim_release.id],
		array[claim_release.token]))[1] $$;
comment on function outbox.claim_release(text, bytea, bigint) is 'Releases a claim. Returns whether it was still '
	'held.';

revoke execute on function
	outbox.claim_take(text, bytea, interval),
	outbox.claim_take_many(text, bytea[], interval),
	outbox.claim_renew(text, bytea[], bigint[], interval),
	outbox.claim_release(text, bytea, bigint),
	outbox.claim_release_many(text, bytea[], bigint[]) from public;
