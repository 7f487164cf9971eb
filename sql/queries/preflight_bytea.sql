-- Roles and databases for which bytea_output is `escape`, with the statement that resets it. Bytes that are cast to text then have a form
-- that the message table does not recognise.
select 'the server' as what, 'alter system set bytea_output = ''hex''; select pg_reload_conf()' as cure
from pg_settings s
where s.name = 'bytea_output' and s.reset_val = 'escape' and s.source in ('configuration file', 'command line')
union all
select concat_ws(' in ', case when r.rolname is not null then format('role %I', r.rolname) end,
		case when d.datname is not null then format('database %I', d.datname) end),
	case when r.rolname is null then format('alter database %I reset bytea_output', d.datname)
		else format('alter role %I', r.rolname)
			|| case when d.datname is null then '' else format(' in database %I', d.datname) end
			|| ' reset bytea_output' end
from pg_db_role_setting s
left join pg_roles r on r.oid = s.setrole
left join pg_database d on d.oid = s.setdatabase
where exists (select from unnest(s.setconfig) c where lower(c) = 'bytea_output=escape')
	and (d.datname is null and r.rolname is not null or d.datname = current_database())
order by 1
