#pragma once
/* What claims.c needs of a store: one row of functions each. */
#include "errors.h"
#include "spec.h"

enum { CLAIMS_ID_MOST = 1024 }; /* bytes; as of dedup (OUTBOX_DEDUP_ID_MAX) */

/* What a line of claims says. */
struct claims_spec {
	const struct claims_store_type *type;
	char *name;         /* of what is claimed: it keeps the claims of others apart */
	char *url;          /* of the server */
	char *dsn, *schema; /* of the database, and of the table in it; NULL: not given */
	int64_t lease_ms;
	int64_t timeout_ms; /* for an answer of a server */
};

/*
 * "redis url=redis://127.0.0.1 name=billing lease=30s". A timeout is a third of the lease at most,
 * so that a renewal can be tried again in time. ret_spec is to be finished in any case.
 */
bool claims_spec_parse(const char *line, struct claims_spec *ret_spec, struct err *err) MUST_CHECK;
void claims_spec_finish(struct claims_spec *spec);

struct claims_store; /* a connection */

struct claims_id {
	const void *id; /* 1 to CLAIMS_ID_MOST bytes */
	size_t length;
	int64_t token;
};

struct claims_store_type {
	struct spec_type spec; /* its name, and the settings of struct claims_spec that it takes */
	/* Connects when it is first needed, and again after a failure. Owned by one thread. */
	struct claims_store *(*open)(const struct claims_spec *spec, struct err *err);
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

/* Rows of struct spec_type. */
enum claims_setting {
	CLAIMS_DSN,
	CLAIMS_SCHEMA,
	CLAIMS_URL,
	CLAIMS_NAME,
	CLAIMS_LEASE,
	CLAIMS_TIMEOUT,
	CLAIMS_SETTINGS
};
extern const struct spec_setting claims_settings[CLAIMS_SETTINGS + 1];

extern const struct claims_store_type redis_claims;
extern const struct claims_store_type postgres_claims;

struct outbox_claims;
/* outbox_claims_open, with the store spec->type. The spec is read while it opens only. */
struct outbox_claims *claims_open(const struct claims_spec *spec, struct err *err);
