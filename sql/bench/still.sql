-- Nothing is cleaned up in the middle of a run: it would be in the run that it falls in.
do $$
declare
	leaf record;
begin
	for leaf in
		select l.relid from pg_partition_tree('outbox.lookback') l where l.isleaf
		union all select l.relid from pg_partition_tree('outbox.message') l where l.isleaf
	loop
		execute format('alter table %s set (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
			leaf.relid);
	end loop;
end $$;
