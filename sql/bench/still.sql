-- Stops clean-up during the runs, because it would slow down the run in which it happens.
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
