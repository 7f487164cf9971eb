-- The id that the sequence gave out last; null: none yet, or no privilege to see it, which servers before 17 report as
-- an error.
select case
	when pg_catalog.has_sequence_privilege('outbox.message_id_seq', 'select, usage')
		then pg_catalog.pg_sequence_last_value('outbox.message_id_seq'::regclass)
end
