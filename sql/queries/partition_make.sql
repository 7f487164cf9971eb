-- $1 from bigint, $2 to bigint, in microseconds since 1970
select outbox.partition_make(timestamptz 'epoch' + $1::bigint * interval '1 us',
	timestamptz 'epoch' + $2::bigint * interval '1 us');
