#pragma once
/* Drops a publisher and its progress, for the command and the HTTP interface. */
#include "database.h"

struct publisher_drop {
	const struct config *config;
	const struct postgres_settings *postgres;
	const char *publisher, *reason;
	const char *force;  /* words of publisher_drop_force; "" */
	const char *caller; /* of the HTTP interface; NULL: none */
	/* results */
	bool is_missing;           /* there is no such publisher */
	int64_t parked, scheduled; /* messages that go with it, counted up to COUNTED_ROWS */
	int64_t audit;             /* the id in outbox.audit */
};
/* owned, last, configured; ends with NULL. */
extern const char *const publisher_drop_force[];

/*
 * Counts, and makes the checks that force can skip. ERR_FENCED: a process owns a shard; ERR_REJECT:
 * another check failed, or there is no such publisher.
 */
bool publisher_drop_plan(struct pg *pg, struct publisher_drop *drop, struct err *err) MUST_CHECK;
bool publisher_drop(struct pg *pg, struct publisher_drop *drop, struct err *err) MUST_CHECK;
/* The question that is answered before it; the caller frees. */
char *publisher_drop_question(const char *publisher);
