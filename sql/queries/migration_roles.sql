-- The roles that are missing although this user may not create one; null: roles.sql can be applied.
select string_agg(n.name, ', ' order by n.place)
from unnest(array['outbox_writer', 'outbox_consumer', 'outbox_relay', 'outbox_reader'])
	with ordinality as n (name, place)
where not exists (select from pg_roles where rolname = n.name)
	and not exists (select from pg_roles where rolname = current_user and (rolcreaterole or rolsuper));
