truncate outbox.message, outbox.bench_plain
