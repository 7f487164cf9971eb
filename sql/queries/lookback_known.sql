select place, kind, prepared_at, digest, decision from outbox.lookback_known($1::text[], $2::text[])
