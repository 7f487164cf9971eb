-- Tables of the schema with row security: its policies decide which rows a role sees and writes.
-- applies: to the role of this connection; then its statements fail, because its sessions turn row_security off.
select c.relname as name,
	coalesce((select string_agg(p.polname, ', ' order by p.polname) from pg_policy p where p.polrelid = c.oid),
		'') as policies,
	row_security_active(c.oid) as applies,
	format('alter table %I.%I disable row level security', n.nspname, c.relname)
		|| case when row_security_active(c.oid)
			then format(', or alter role %I bypassrls', current_user) else '' end as cure
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'outbox' and c.relkind in ('r', 'p') and c.relrowsecurity
order by c.relname
