-- oldest-program: 0.1.0
--
-- Every role and every grant. Applied after the numbered files, and again whenever it changed; not at
-- all with --no-roles. Grant the roles to your own roles: GRANT outbox_writer TO shop.
--
--   outbox_writer    writes messages: by outbox.publish, INSERT or COPY of the columns that are its own
--   outbox_consumer  tells copies of messages from the first, by the functions of outbox.processed, claims
--                    ids (outbox.claim), and reports messages as handled (outbox.unique_done)
--   outbox_relay     reads messages, keeps the log; changes partitions by functions, owns nothing
--   outbox_reader    sees everything but payloads

do $$
declare
	name text;
begin
	foreach name in array array['outbox_writer', 'outbox_consumer', 'outbox_relay',
			'outbox_reader'] loop
		if not exists (select from pg_roles where rolname = name) then
			execute format('create role %I nologin', name);
		end if;
	end loop;
end $$;

grant usage on schema outbox to outbox_writer, outbox_consumer, outbox_relay, outbox_reader;

-- Functions in a constraint run as the writer; nothing else is granted to everybody.
revoke execute on all functions in schema outbox from public;
grant execute on function outbox.headers_valid(json), outbox.max_message_bytes(), outbox.utf8_length(text),
	outbox.is_hex_of_bytes(text), outbox.encoding_is_utf8(), outbox.new_event_id(),
	outbox.bucket_of(text, bytea), outbox.published_bytes(text, bytea),
	outbox.publishable_types(), outbox.check_publishable(regtype, text),
	outbox.message_rules(text, text, text, bytea, bytea, json, int, timestamptz, text) to public;

grant insert (event_id, topic, key, payload, headers, partition, deliver_at, key_bytes, payload_bytes)
	on outbox.message to outbox_writer;
-- of all messages: an INSERT may return them. Object mappers that reflect the table return each column with a default.
grant select (id, event_id, created_at, txid, bucket) on outbox.message to outbox_writer;
grant execute on function
	outbox.publish(text, text, text, jsonb, uuid, timestamptz, text, interval, text),
	outbox.publish(text, text, text, json, uuid, timestamptz, text, interval, text),
	outbox.publish(text, text, text, text, uuid, timestamptz, text, interval, text),
	outbox.publish(text, text, anycompatible, jsonb, uuid, timestamptz, text, interval, text),
	outbox.publish(text, text, anycompatible, json, uuid, timestamptz, text, interval, text),
	outbox.publish(text, text, anycompatible, text, uuid, timestamptz, text, interval, text),
	outbox.publish(text, anyelement, text, jsonb, uuid, timestamptz, text, interval, text),
	outbox.publish(text, anyelement, text, json, uuid, timestamptz, text, interval, text),
	outbox.publish(text, anyelement, text, text, uuid, timestamptz, text, interval, text),
	outbox.publish(text, anyelement, anycompatible, jsonb, uuid, timestamptz, text, interval, text),
	outbox.publish(text, anyelement, anycompatible, json, uuid, timestamptz, text, interval, text),
	outbox.publish(text, anyelement, anycompatible, text, uuid, timestamptz, text, interval, text),
	outbox.publish_batch(text, text[], text[], text[], interval, text, json[], uuid[], timestamptz, bytea[], bytea[]),
	outbox.publish_unique(text, text, bytea, text, bytea, json, uuid, timestamptz, text, interval, text, boolean),
	outbox.unique_take(text, text, interval, text, boolean, timestamptz),
	outbox.unique_lock(text, text[], interval, text),
	outbox.unique_note(bigint, text, text, uuid, bigint, timestamptz, interval, text),
	outbox.message_state_of(uuid, timestamptz) to outbox_writer;

grant execute on function
	outbox.processed_take(text, bytea[], timestamptz[], interval),
	outbox.processed_claim(text, bytea[], timestamptz[], interval),
	outbox.processed_add(text, bytea[], timestamptz[], interval),
	outbox.processed_give_back(text, bytea[]),
	outbox.processed_remove(text, bytea[]),
	outbox.claim_take(text, bytea, interval),
	outbox.claim_take_many(text, bytea[], interval),
	outbox.claim_renew(text, bytea[], bigint[], interval),
	outbox.claim_release(text, bytea, bigint),
	outbox.claim_release_many(text, bytea[], bigint[]),
	outbox.unique_done(uuid[]),
	outbox.rules_judge(text, bigint[], bigint[], bigint[], bytea[], bigint[], bigint[], bigint[], bigint[],
		bigint[], bigint[], bigint[]) to outbox_consumer;

grant select on outbox.message, outbox.message_default, outbox.publisher, outbox.log, outbox.progress,
	outbox.message_state, outbox.migration, outbox.archive, outbox.process,
	outbox.deliver_section, outbox.deliver_process to outbox_relay;
grant select on sequence outbox.message_id_seq to outbox_relay; -- a relay at rest looks whether it has moved
grant select, insert on outbox.lookback to outbox_relay;
grant select on outbox.lookback_default, outbox.processed, outbox.processed_default,
	outbox.unique_ledger, outbox.unique_ledger_default to outbox_relay;
grant select, insert, delete on outbox.lookback_log, outbox.lookback_conflict to outbox_relay;
grant select, insert, update, delete on outbox.lookback_overdue to outbox_relay;
grant insert on outbox.log to outbox_relay;
-- the database fills in the user and the time of the request
grant select, insert (reason, publisher, filter, target, rate, snapshot, shards, acked, windows, acked_ids,
	upto_id, last_id, total, nonce, owner, lease_until, caller, by_relay, system_identifier),
	update (last_id, done, state, nonce, owner, lease_until, noted_at, by_relay, begun_at, begun_done, error)
	on outbox.replay
	to outbox_relay;
grant select, insert (caller, reason, section, filter, ends, total),
	update (done, state, nonce, owner, lease_until, noted_at, begun_at, begun_done, error) on outbox.redrive
	to outbox_relay;
grant select, insert (caller, reason, publisher, filter),
	update (total, done, state, nonce, owner, lease_until, noted_at, begun_at, error, result) on outbox.verification
	to outbox_relay;
grant select, insert on outbox.skipped, outbox.renumbered to outbox_relay;
grant select, insert, update, delete on outbox.parked, outbox.parked_request, outbox.scheduled,
	outbox.destination
	to outbox_relay;
grant select, insert (caller, verb, publisher, target, reason) on outbox.audit to outbox_relay;
grant update (requests) on outbox.publisher to outbox_relay;
grant execute on all functions in schema outbox to outbox_relay;

grant select (txid, id, created_at, event_id, topic, key, key_bytes, headers, partition, deliver_at,
	bucket) on outbox.message to outbox_reader;
grant select on outbox.publisher, outbox.log, outbox.destination, outbox.progress, outbox.message_state,
	outbox.replay, outbox.redrive, outbox.verification, outbox.audit, outbox.migration, outbox.parked_request,
	outbox.skipped, outbox.renumbered, outbox.archive, outbox.process,
	outbox.deliver_section, outbox.deliver_process to outbox_reader;
grant select (publisher, shard, id, created_at, event_id, topic, key, headers, partition, state, error,
	stalled, attempts, next_at, parked_at, tick, request_id, digest, txid, changed, was_id) on outbox.parked to outbox_reader;
grant select (publisher, shard, id, created_at, event_id, topic, key, headers, partition, deliver_at, tick,
	was_id) on outbox.scheduled to outbox_reader;
grant select (txid, id, created_at) on outbox.message_default to outbox_reader;
grant select (biz_type, biz_id, prepared_at, kind, txid, section, source_partition, source_offset, topic,
	key, headers, check_service, check_url, check_at, expires_at, digest, decision, source, decided_at,
	decided_by, reason, event_id, unique_key, within, while_pending, duplicate) on outbox.lookback to outbox_reader;
grant select (biz_type, biz_id, prepared_at, kind) on outbox.lookback_default to outbox_reader;
grant select on outbox.lookback_log, outbox.lookback_overdue, outbox.lookback_conflict
	to outbox_reader;
grant select on outbox.processed, outbox.processed_default, outbox.unique_ledger, outbox.unique_ledger_default,
	outbox.claim, outbox.rule_record, outbox.consumer to outbox_reader;
grant execute on function outbox.partitioned(), outbox.partitions(text), outbox.log_partitions(),
	outbox.partition_time_column(text), outbox.partition_default_rows(text, bigint),
	outbox.shard_of(bytea, int), outbox.bucket_shard(smallint, int), outbox.first_bucket(int, int),
	outbox.shard_numbers(int),
	outbox.partition_floor(timestamptz, interval), outbox.timeline(), outbox.system_identifier(),
	outbox.has_rows_of_the_future(), outbox.log_was_carried(text, int, bigint, bigint),
	outbox.parked_is(bigint, text, bytea, text, timestamptz, text, jsonb),
	outbox.parked_may(text, text), outbox.parked_candidates(text, jsonb, bigint, bigint),
	outbox.parked_request_of(text, int, bigint, text, bytea, text, timestamptz, text, xid8),
	outbox.lookback_is(outbox.lookback_overdue, jsonb), outbox.message_ids(),
	outbox.message_id_at(timestamptz), outbox.bucket_of(text, bytea),
	outbox.message_scan(uuid, text, bytea, timestamptz, timestamptz, bigint, int, int),
	outbox.message_windows(text, int, xid8, bigint), outbox.message_acknowledged(text, int, bigint, bigint),
	outbox.replay_has(outbox.replay, bigint, timestamptz, uuid, text, bytea, xid8, smallint) to outbox_reader;
