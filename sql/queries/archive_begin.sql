-- $1 id bigint, $2 host text, $3 folder text
select b.outcome, b.new_file, b.old_file, b.header, b.table_name, b.columns
from outbox.archive_begin($1::bigint, $2::text, $3::text) b
