#pragma once
/*
 * Compares the message table with its topics (`verify`): verify_table reads rows, verify_topics
 * reads records, and the engine judges them. A table that is larger than the memory is judged in
 * rounds, each of which reads the topics again.
 */
#include "verify_topics.h"

struct verification_settings {
	const struct publisher_settings *publisher;
	struct verify_range range;
	const char
	    *sequence;  /* a field of JSON payloads that counts up with each key; NULL: none */
	int64_t memory; /* bytes for rows */
	struct progress_watch watch; /* its goes_on ends the verification within a second or two */
};

struct verification;

/* pg and the pointers of the settings must outlive it. Blocks. NULL: *err says why. */
struct verification *verification_open(
    struct pg *pg, const struct verification_settings *settings, struct err *err);
void verification_close(struct verification *verification); /* NULL is fine */

/* Call it once. Blocks until every row is judged. */
bool verification_run(struct verification *verification, struct err *err) MUST_CHECK;

/* Valid as long as the verification. */
const struct publisher_settings *verification_publisher(const struct verification *verification);
const struct verify_verdict *verification_verdict(const struct verification *verification);
const struct verify_topics *verification_topics(const struct verification *verification);
