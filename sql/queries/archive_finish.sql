-- $1 id bigint, $2 file text, $3 rows bigint, $4 bytes bigint, $5 bytes of the file bigint, $6 checksum text
select outbox.archive_finish($1::bigint, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::text)
