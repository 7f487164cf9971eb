#pragma once
/*
 * What a store is opened with, from one line of a configuration (spec.h):
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
#include "spec.h"

struct dedup_spec {
	const struct dedup_store_type *type;
	bool lossy;         /* the word is there */
	char *form;         /* how the store does it, where there are several ways */
	int64_t ids;        /* at most that many different ones in a window, as planned */
	double rate;        /* of false positives, of the whole window */
	double alarm;       /* tell when the observed rate is larger; 0: never */
	int64_t window_ms;  /* so long an id is remembered; 0 until dedup_spec_check */
	int64_t slices;     /* the window is cut into so many */
	int64_t hot;        /* ids in the exact layer in front; 0: none */
	int64_t pending;    /* at most so many at a time; 0 until dedup_spec_check */
	char *path;         /* the folder of its state; NULL: not given */
	bool confirm_sql;   /* a query confirms what the filter has */
	char *dsn, *query;  /* of the database that confirms, or that has the table */
	char *schema;       /* of the table */
	char *url;          /* of the server */
	char *name;         /* of what is deduplicated: shared stores keep it apart by that */
	int64_t lease_ms;   /* what is pending in a shared store is so for so long */
	int64_t timeout_ms; /* for an answer of a server */
	/* Memory of one store with all planned ids, computed by the check; 0: `ids` plans none.
	 * Every assigned partition has a local store of its own. */
	uint64_t planned_bytes;
};

/* A store that is given no `window` remembers ids for so long. */
enum { DEDUP_WINDOW_MS = 86400000, DEDUP_HOT = 4096 };

/* Rows of struct spec_type. */
enum dedup_setting {
	DEDUP_SET_LOSSY,
	DEDUP_SET_IDS,
	DEDUP_SET_RATE,
	DEDUP_SET_ALARM,
	DEDUP_SET_WINDOW,
	DEDUP_SET_SLICES,
	DEDUP_SET_HOT,
	DEDUP_SET_PENDING,
	DEDUP_SET_PATH,
	DEDUP_SET_FORM,
	DEDUP_SET_CONFIRM,
	DEDUP_SET_QUERY,
	DEDUP_SET_DSN,
	DEDUP_SET_SCHEMA,
	DEDUP_SET_URL,
	DEDUP_SET_NAME,
	DEDUP_SET_LEASE,
	DEDUP_SET_TIMEOUT,
	DEDUP_SETTINGS
};
extern const struct spec_setting dedup_settings[DEDUP_SETTINGS + 1];

/* In the row of a store: DEDUP_TAKES(IDS) | DEDUP_TAKES(RATE). Every store takes the last two. */
#define DEDUP_TAKES(setting) (1U << DEDUP_SET_##setting)
#define DEDUP_TAKES_ALWAYS (DEDUP_TAKES(LOSSY) | DEDUP_TAKES(PENDING))

/* A slice of the window has this length: no part of the window is left out. */
static inline int64_t dedup_spec_slice_ms(const struct dedup_spec *spec)
{
	return (spec->window_ms + spec->slices - 1) / spec->slices;
}

/* The defaults; a setting that has none, or only dedup_spec_check's, is 0 or NULL. */
void dedup_spec_init(struct dedup_spec *spec, const struct dedup_store_type *type);
void dedup_spec_finish(struct dedup_spec *spec);

/* Does the spec have all that its store needs, and does it fit together? Sets the defaults that
 * follow from other settings. */
bool dedup_spec_check(struct dedup_spec *spec, struct err *err) MUST_CHECK;

/* The spec of a window of slices; its path is that of the spec. */
struct dedup_window_settings dedup_spec_window(const struct dedup_spec *spec);
/* For the check of a store: sets planned_bytes. False: the machine has less memory. by_rate: a
 * larger rate needs less. */
bool dedup_spec_check_memory(
    struct dedup_spec *spec, uint64_t bytes, bool by_rate, struct err *err) MUST_CHECK;
