truncate outbox.message, outbox.unique_ledger, outbox.bench_plain
