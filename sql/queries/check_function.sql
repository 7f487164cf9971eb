-- May this login call the function that a [check] section names, and may it write? $1 the function.
-- Nothing: there is none.
select has_function_privilege(p.oid, 'execute') as callable, p.provolatile = 'v' as writes
from pg_proc p where p.oid = to_regprocedure($1::text || '(text, text[])')
