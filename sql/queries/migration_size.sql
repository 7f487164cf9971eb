-- $1 bytes
select outbox.set_max_message_bytes($1::bigint);
