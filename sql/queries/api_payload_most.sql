-- The longest payload that the tables accept, in bytes (outbox.set_max_message_bytes).
select outbox.max_message_bytes()::text
