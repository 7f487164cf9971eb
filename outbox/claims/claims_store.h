#pragma once
/* The interface between claims.c and its stores: each store is a row of functions. */
#include "claims.h"
#include "errors.h"
#include "redis_address.h"
#include "spec.h"

enum { CLAIMS_ID_MOST = 1024 }; /* bytes; the same as OUTBOX_DEDUP_ID_MAX */

/* The settings of a line. */
struct claims_spec {
	const struct claims_store_type *type;
	char *name; /* keeps these claims apart from others on the server */
	struct redis_access server;
	char *dsn, *schema; /* database, and schema of the table; NULL: not given */
	int64_t lease_ms;
	int64_t timeout_ms; /* for an answer of the server */
};

/*
 * Parses a line such as "redis url=redis://127.0.0.1 name=billing lease=30s". The timeout becomes
 * at most a third of the lease, so that a failed renewal can be repeated in time. The caller
 * finishes ret_spec in any case.
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
	struct spec_type spec; /* the store's name, and the settings that it takes */
	/* Connects; calls connect again after a failure. Owned by one thread. */
	struct claims_store *(*open)(const struct claims_spec *spec, struct err *err);
	void (*close)(struct claims_store *store);
	/*
	 * Takes claims on the ids, and sets the token of each; 0: another holder has the id, or it
	 * came before in the call. On failure some may have been taken.
	 */
	bool (*take)(
	    struct claims_store *store, struct claims_id *ids, size_t count, struct err *err);
	/* Renews each claim that the server still stores with this token, for a whole lease from
	 * now. ret_held: one for each id, in their order; false: the claim is lost. */
	bool (*renew)(struct claims_store *store, const struct claims_id *ids, size_t count,
	    bool *ret_held, struct err *err);
	/* ret_held: one for each id; the claim was still stored with this token, and is now
	 * removed. */
	bool (*release)(struct claims_store *store, const struct claims_id *ids, size_t count,
	    bool *ret_held, struct err *err);
};

/* Indexes of claims_settings. */
enum claims_setting {
	CLAIMS_DSN,
	CLAIMS_SCHEMA,
	CLAIMS_URL,
	CLAIMS_PASSWORD_FILE,
	CLAIMS_TLS_CA,
	CLAIMS_TLS_CERTIFICATE,
	CLAIMS_TLS_KEY,
	CLAIMS_SENTINEL_PASSWORD_FILE,
	CLAIMS_NAME,
	CLAIMS_LEASE,
	CLAIMS_TIMEOUT,
	CLAIMS_SETTINGS
};
extern const struct spec_setting claims_settings[CLAIMS_SETTINGS + 1];

extern const struct claims_store_type redis_claims;
extern const struct claims_store_type postgres_claims;

/* Like outbox_claims_open, with the store spec->type. Keeps no reference to the spec. */
struct outbox_claims *claims_open(const struct claims_spec *spec, struct err *err);

/*
 * outbox_claims_take for at most CLAIMS_MOST ids, with one request to the server where it allows
 * that. ret_claims: one for each id; token 0: not taken.
 */
enum { CLAIMS_MOST = 1000 };
bool claims_take_many(struct outbox_claims *claims, const struct claims_id *ids, size_t count,
    struct outbox_claim *ret_claims, struct err *err) MUST_CHECK;
/*
 * outbox_claims_release for at most CLAIMS_MOST claims. True: the server has answered; *ret_lost is
 * the number of claims that were lost before.
 */
bool claims_release_many(struct outbox_claims *claims, const struct outbox_claim *released,
    size_t count, size_t *ret_lost, struct err *err) MUST_CHECK;
