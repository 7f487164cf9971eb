-- Limits every statement to :limit ms, for this transaction if :local, otherwise for the session.
select pg_catalog.set_config('statement_timeout', (:limit)::text, :local),
	pg_catalog.set_config('lock_timeout', '0', :local)
