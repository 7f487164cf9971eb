-- The id that the sequence gave out last; null: none yet, or no privilege to see it.
select pg_sequence_last_value('outbox.message_id_seq'::regclass)
