-- $1 table text, $2 from bigint, $3 to bigint, in microseconds since 1970
select outbox.partition_make($1::text, timestamptz 'epoch' + $2::bigint * interval '1 us',
	timestamptz 'epoch' + $3::bigint * interval '1 us');
