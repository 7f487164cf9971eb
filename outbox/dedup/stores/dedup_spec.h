#pragma once
/*
 * The settings of a store, from one line of a configuration (spec.h):
 *
 *   bloom ids=50M rate=0.1% window=24h path=/var/lib/billing/dedup
 *   redis lossy form=bitmap ids=100M url=redis://127.0.0.1 name=billing
 *   bloom ids=1M path=/d confirm=sql dsn="host=/tmp dbname=app" query="select …"
 *
 * A store takes some of the settings below; its row says which (dedup_store.h). Each refusal names
 * the setting and the cure (ERR_CONFIG).
 */
#include <stdbool.h>
#include <stdint.h>
#include "dedup_window.h"
#include "errors.h"
#include "redis_address.h"
#include "spec.h"

struct dedup_spec {
	const struct dedup_store_type *type;
	bool lossy;        /* the line has the word `lossy` */
	char *form;        /* chooses among the forms of the store; NULL: not given */
	int64_t ids;       /* planned maximum of different ids in a window */
	double rate;       /* false positive rate of the whole window */
	double alarm;      /* observed rate above which there is an alarm; 0: never */
	int64_t window_ms; /* minimum time for which an id is kept; 0 until dedup_spec_check */
	int64_t slices;    /* number of slices of the window; 0 until dedup_spec_check */
	int counter_bits;  /* width of a counter: 4 or 8 */
	int64_t hot;       /* number of ids in the exact layer in front; 0: none */
	int64_t pending;   /* maximum number of pending ids; 0 until dedup_spec_check */
	char *path;        /* the folder of the store's state; NULL: not given */
	bool confirm_sql;  /* a query confirms the hits of the filter */
	char *dsn, *query; /* dsn: the database of the query, or of the table */
	char *schema;      /* schema of the table */
	struct redis_access server;
	char *zone;         /* time zone of dated filters; NULL: not given, UTC */
	char *name;         /* shared stores keep ids under different names apart */
	int64_t lease_ms;   /* time for which an id is pending in a shared store */
	int64_t timeout_ms; /* for an answer of a server */
	/* Does the line have `window`, `slices`? dedup_spec_check sets both. */
	bool windowed, sliced;
	/* Memory of one store with all planned ids, computed by the check; 0: `ids` plans no
	 * memory. Every assigned partition has a local store of its own. */
	uint64_t planned_bytes;
};

/* Defaults of `window`, and of `hot` with a filter; maximum of `slices`. */
enum { DEDUP_WINDOW_MS = 86400000, DEDUP_HOT = 4096, DEDUP_MOST_SLICES = 31 };

/* Indexes of dedup_settings. */
enum dedup_setting {
	DEDUP_SET_LOSSY,
	DEDUP_SET_IDS,
	DEDUP_SET_RATE,
	DEDUP_SET_ALARM,
	DEDUP_SET_WINDOW,
	DEDUP_SET_SLICES,
	DEDUP_SET_COUNTER,
	DEDUP_SET_HOT,
	DEDUP_SET_PENDING,
	DEDUP_SET_PATH,
	DEDUP_SET_FORM,
	DEDUP_SET_CONFIRM,
	DEDUP_SET_QUERY,
	DEDUP_SET_DSN,
	DEDUP_SET_SCHEMA,
	DEDUP_SET_URL,
	DEDUP_SET_PASSWORD_FILE,
	DEDUP_SET_TLS_CA,
	DEDUP_SET_TLS_CERTIFICATE,
	DEDUP_SET_TLS_KEY,
	DEDUP_SET_SENTINEL_PASSWORD_FILE,
	DEDUP_SET_ZONE,
	DEDUP_SET_NAME,
	DEDUP_SET_LEASE,
	DEDUP_SET_TIMEOUT,
	DEDUP_SETTINGS
};
extern const struct spec_setting dedup_settings[DEDUP_SETTINGS + 1];

/* In the row of a store: DEDUP_TAKES_ALWAYS | DEDUP_TAKES(IDS) | DEDUP_TAKES(RATE). */
#define DEDUP_TAKES(setting) (1U << DEDUP_SET_##setting)
#define DEDUP_TAKES_ALWAYS (DEDUP_TAKES(LOSSY) | DEDUP_TAKES(PENDING))

/* The length of a slice, rounded up so that the slices cover the whole window. */
static inline int64_t dedup_spec_slice_ms(const struct dedup_spec *spec)
{
	return (spec->window_ms + spec->slices - 1) / spec->slices;
}

/* Sets the defaults. A setting without a default, or with one that the check sets, is 0 or NULL; an
 * `alarm` of -1 means the same. */
void dedup_spec_init(struct dedup_spec *spec, const struct dedup_store_type *type);
void dedup_spec_finish(struct dedup_spec *spec);

/* Does the spec have every setting that its store needs, and do the settings fit together? Sets the
 * defaults that follow from other settings. */
bool dedup_spec_check(struct dedup_spec *spec, struct err *err) MUST_CHECK;

/* Of a checked spec: does its store forget ids that are older than window_ms? */
bool dedup_spec_forgets(const struct dedup_spec *spec);

/* The settings of a window of slices. The path still belongs to the spec. */
struct dedup_window_settings dedup_spec_window(const struct dedup_spec *spec);
/* For the function `check` of a store: sets planned_bytes. False: the machine has less memory.
 * by_rate: a larger rate needs less memory. */
bool dedup_spec_check_memory(
    struct dedup_spec *spec, uint64_t bytes, bool by_rate, struct err *err) MUST_CHECK;
