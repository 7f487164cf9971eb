-- May this login call the function that a [check] section names? $1 the function. Nothing: there is none.
select has_function_privilege(to_regprocedure($1::text || '(text, text[])')::oid, 'execute')
where to_regprocedure($1::text || '(text, text[])') is not null
