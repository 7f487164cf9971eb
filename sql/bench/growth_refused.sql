-- Messages of 20 keys of random bytes. Kafka refuses the first message of each key, which is too large.
-- $1 topic text, $2 bytes of a key int, $3 rows bigint
insert into outbox.message (topic, key_bytes, payload)
select $1::text, k.key, case when r <= 20 then large.text else repeat('x', 300) end
from generate_series(1, $3::bigint) r
join (
	select n, substr(decode((
		select string_agg(md5(n || '.' || g), '') from generate_series(0, $2::int / 16) g), 'hex'),
		1, $2::int) as key
	from generate_series(0, 19) n) k on k.n = r % 20
cross join (
	select string_agg(md5(g::text), '') as text from generate_series(1, 4000) g) large
order by r
