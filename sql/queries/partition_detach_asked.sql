-- An operator's partition_detach; the same transaction adds the reason to outbox.audit.
-- $1 name text, $2 forced words text, comma separated or "", $3 forced boolean, $4 reason text, $5 caller text
with step as materialized (
	select outbox.partition_detach($1::text, $3::boolean) as outcome
), noted as (
	insert into outbox.audit (caller, verb, target, reason)
	select $5::text, 'partition detach', jsonb_build_object('partition', $1::text, 'force', $2::text), $4::text
	from step where outcome = 'detached'
	returning id
)
select outcome, (select n.id from noted n) as audit from step
