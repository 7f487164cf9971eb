#pragma once
/*
 * What a store is opened with, from one line of a configuration:
 *
 *   bloom ids=50M rate=0.1% window=24h path=/var/lib/billing/dedup
 *   redis lossy form=bitmap ids=100M url=redis://127.0.0.1 name=billing
 *   bloom ids=1M path=/d confirm=sql dsn="host=/tmp dbname=app" query="select …"
 *
 * first the store, then settings in any order. A value with blanks stands in double quotes, in
 * which a double quote is written twice. `lossy` is a word of its own. A setting that the store
 * does not take is refused. Each refusal names the setting and the cure (ERR_CONFIG).
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"

enum dedup_kind {
	DEDUP_BLOOM,
	DEDUP_EXACT,
	DEDUP_COUNTING,
	DEDUP_BITMAP,
	DEDUP_REDIS,
	DEDUP_POSTGRES,
	DEDUP_SEQUENCE,
	DEDUP_KINDS,
	/* of claims (claims.h) */
	DEDUP_CLAIMS_REDIS = DEDUP_KINDS,
	DEDUP_CLAIMS_POSTGRES,
	DEDUP_ALL_KINDS
};
extern const char *const dedup_kind_names[DEDUP_ALL_KINDS + 1];

/* How the store does it, where there are several ways. */
enum dedup_form {
	DEDUP_FORM_NONE,
	DEDUP_FORM_PLAIN,  /* bitmap: one bit an integer */
	DEDUP_FORM_HASH,   /* bitmap, lossy: by CRC32 of the id */
	DEDUP_FORM_KEY,    /* redis: a key an id */
	DEDUP_FORM_BITMAP, /* redis, lossy: a partitioned bitmap */
	DEDUP_FORM_BLOOM,  /* redis, lossy: the server's own filter */
	DEDUP_FORMS
};
enum dedup_confirm { DEDUP_CONFIRM_LOG, DEDUP_CONFIRM_SQL, DEDUP_CONFIRMS };

struct dedup_spec {
	enum dedup_kind kind;
	bool lossy; /* the word is there */
	enum dedup_form form;
	int64_t ids;       /* at most that many different ones in a window, as planned */
	double rate;       /* of false positives, of the whole window */
	double alarm;      /* tell when the observed rate is larger; 0: never */
	int64_t window_ms; /* so long an id is remembered; 0 until dedup_spec_check */
	int64_t slices;    /* the window is cut into so many */
	int64_t hot;       /* ids in the exact layer in front; 0: none, or until dedup_spec_check */
	int64_t pending;   /* at most so many at a time; 0 until dedup_spec_check */
	char *path;        /* the folder of its state; NULL: not given */
	enum dedup_confirm confirm;
	char *dsn, *query;  /* of the database that confirms, or that has the table */
	char *schema;       /* of the table */
	char *url;          /* of the server */
	char *name;         /* of what is deduplicated: shared stores keep it apart by that */
	int64_t lease_ms;   /* what is pending in a shared store is so for so long */
	int64_t timeout_ms; /* for an answer of a server */
};

/* So long is one of the slices: no part of the window is left out. */
static inline int64_t dedup_spec_slice_ms(const struct dedup_spec *spec)
{
	return (spec->window_ms + spec->slices - 1) / spec->slices;
}

/* The defaults; what has none, or only dedup_spec_check's, is 0 or NULL. */
void dedup_spec_init(struct dedup_spec *spec);
void dedup_spec_finish(struct dedup_spec *spec);

/* One setting; value NULL: a word of its own. The name need not be one. */
bool dedup_spec_set(
    struct dedup_spec *spec, const char *name, const char *value, struct err *err) MUST_CHECK;
/* Is everything there that the store needs, and does it fit together? Sets what follows from it. */
bool dedup_spec_check(struct dedup_spec *spec, struct err *err) MUST_CHECK;
/*
 * The line of claims (claims.h): redis or postgres, with name, url or dsn and schema, lease,
 * timeout. A timeout is a third of the lease at most, so that a renewal can be tried again in time.
 */
bool dedup_spec_parse_claims(
    const char *line, struct dedup_spec *ret_spec, struct err *err) MUST_CHECK;
/* The line; all of the above. ret_spec is to be finished in any case. */
bool dedup_spec_parse(const char *line, struct dedup_spec *ret_spec, struct err *err) MUST_CHECK;
