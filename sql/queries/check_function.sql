-- May this login call the function that a [check] section names, and may it write? $1 the function.
-- No row: the function does not exist.
-- Any search_path: the session is not ours.
select pg_catalog.has_function_privilege(p.oid, 'execute') as callable,
	p.provolatile operator(pg_catalog.=) 'v' as writes
from pg_catalog.pg_proc p where p.oid operator(pg_catalog.=) pg_catalog.to_regprocedure(
	$1::pg_catalog.text operator(pg_catalog.||) '(pg_catalog.text, pg_catalog.text[])')
