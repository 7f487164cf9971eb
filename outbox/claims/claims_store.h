#pragma once
/* What claims.c needs of a store: one row of functions each. */
#include "dedup_spec.h"
#include "errors.h"

struct claims_store; /* a connection */

struct claims_id {
	const void *id; /* 1 to OUTBOX_DEDUP_ID_MAX bytes */
	size_t length;
	int64_t token;
};

struct claims_store_type {
	/* Connects when it is first needed, and again after a failure. Owned by one thread. */
	struct claims_store *(*open)(const struct dedup_spec *spec, struct err *err);
	void (*close)(struct claims_store *store);
	/* ret_token 0: somebody has it. */
	bool (*take)(struct claims_store *store, const void *id, size_t length, int64_t *ret_token,
	    struct err *err);
	/* Each that has this token still has it for a whole lease from now on. */
	bool (*renew)(struct claims_store *store, const struct claims_id *ids, size_t count,
	    bool *ret_held, struct err *err);
	/* ret_held: it had this token; nobody has it now. */
	bool (*release)(struct claims_store *store, const struct claims_id *id, bool *ret_held,
	    struct err *err);
};

extern const struct claims_store_type redis_claims;
extern const struct claims_store_type postgres_claims;

struct outbox_claims;
/* outbox_claims_open, with any store. The spec is read while it opens only. */
struct outbox_claims *claims_open(
    const struct claims_store_type *type, const struct dedup_spec *spec, struct err *err);
