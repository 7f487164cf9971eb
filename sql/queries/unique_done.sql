-- Reports messages as handled, so that their unique keys may be used again.
-- $1 event ids uuid[]
select outbox.unique_done($1::uuid[])
