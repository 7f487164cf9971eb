-- $1 publisher text, $2 shard int, $3 tick bigint, $4 id bigint, under which the message was published
select to_char(outbox.message_acknowledged($1::text, $2::int, $3::bigint, $4::bigint) at time zone 'UTC',
	'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as acknowledged_at
