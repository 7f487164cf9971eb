-- An operator's partition_empty; the same transaction adds the reason to outbox.audit.
-- $1 name text, $2 forced words text, comma separated or "", $3 forced boolean, $4 reason text
with step as materialized (
	select outbox.partition_empty($1::text, $3::boolean) as outcome
), noted as (
	insert into outbox.audit (verb, target, reason)
	select 'partition drop', jsonb_build_object('partition', $1::text, 'force', $2::text), $4::text
	from step where outcome = 'emptied'
)
select outcome from step
