-- The message that a commit wrote, and its state in each publisher. It was written by the decision's
-- transaction. $1 event_id uuid, $2 txid xid8.
select m.id, s.publisher, s.state from outbox.message m
left join outbox.message_state s on s.id = m.id and s.created_at = m.created_at
where m.txid = $2::text::xid8 and m.event_id = $1::uuid order by s.publisher
