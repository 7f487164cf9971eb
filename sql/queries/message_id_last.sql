-- The id that the sequence gave out last; 0: none yet; null: no privilege to see it, which servers before 17 report as
-- an error.
select case
	when pg_catalog.has_sequence_privilege('outbox.message_id_seq', 'select, usage')
		then coalesce(pg_catalog.pg_sequence_last_value('outbox.message_id_seq'::regclass), 0)
end
