-- $1 type text, $2 id text, $3 prepared_at timestamptz.
select encode(p.payload, 'hex') from outbox.lookback p
where p.biz_type = $1::text and p.biz_id = $2::text and p.prepared_at = $3::timestamptz and p.kind = 'prepare'
