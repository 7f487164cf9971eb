-- $1 header jsonb, $2 rows bigint, $3 bytes bigint, $4 bytes of the file bigint, $5 checksum text, $6 host text,
-- $7 folder text, $8 file text
select b.outcome, b.detail, b.archive_id, b.table_name, b.columns
from outbox.restore_begin($1::jsonb, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::text, $7::text, $8::text) b
