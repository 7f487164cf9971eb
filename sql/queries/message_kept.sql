-- Parked and scheduled messages with an event id: their partition of outbox.message may have been dropped.
-- $1 event id uuid
select coalesce(p.was_id, p.id) as id, p.created_at::text from outbox.parked p where p.event_id = $1::uuid
union
select coalesce(s.was_id, s.id), s.created_at::text from outbox.scheduled s where s.event_id = $1::uuid
limit 10
