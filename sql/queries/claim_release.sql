-- Releases claims. For each, in order: was it still ours? If a crash of the server undoes the release, the
-- claims end with their leases: so the commit does not wait for the disk.
-- $1 name text, $2 ids bytea[], $3 tokens bigint[]
select unnest(outbox.claim_release_many($1::text, $2::bytea[], $3::bigint[]))::int
from pg_catalog.set_config('synchronous_commit', 'off', true)
