-- $1 an id that the sequence gave out, bigint; 0: none is known.
select last_id, kept_id, increment, cache, raised_to from outbox.message_ids_raise($1::bigint)
