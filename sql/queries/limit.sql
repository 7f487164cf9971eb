-- Every statement takes :limit ms at most; :local: of this transaction, else of the session.
select pg_catalog.set_config('statement_timeout', (:limit)::text, :local),
	pg_catalog.set_config('lock_timeout', '0', :local)
