#include "id_watch.h"

#include <inttypes.h>
#include "logging.h"
#include "metrics.h"
#include "schema_query.h"
#include "sql_files.h"
#include "text.h"

static const struct metric_family raised_family = {
    .name = "relay_id_sequence_raised_total",
    .type = METRIC_COUNTER,
    .help = "How often the sequence of message.id had gone back and was raised.",
    .labels = {"database"},
};
static const struct metric_family unordered_family = {
    .name = "relay_id_sequence_unordered",
    .type = METRIC_GAUGE,
    .help = "1 while the sequence of message.id has CACHE above 1 or goes down.",
    .labels = {"database"},
};

static const char *const *labels_of(const struct id_watch *watch)
{
	return &watch->database;
}

void id_watch_init(struct id_watch *watch, const char *database, const char *schema)
{
	*watch = (struct id_watch){.database = database, .schema = schema};
	metric_add(metric_series(&raised_family, labels_of(watch)), 0);
	metric_set(metric_series(&unordered_family, labels_of(watch)), 0);
}

/* Columns of message_ids_raise.sql. */
enum { LAST_ID, KEPT_ID, INCREMENT, CACHE, RAISED_TO };

static void report_raise(const struct id_watch *watch, const struct pg_result *ids)
{
	metric_add(metric_series(&raised_family, labels_of(watch)), 1);
	log_error("id_sequence_went_back", {"database", LOG_TEXT(watch->database)},
	    {"last_id", LOG_INT(pg_int(ids, 0, LAST_ID))},
	    {"highest_id", LOG_INT(pg_int(ids, 0, KEPT_ID))},
	    {"raised_to", LOG_INT(pg_int(ids, 0, RAISED_TO))},
	    {"consequence",
		LOG_TEXT("the sequence of message.id was reset (a restore, TRUNCATE … RESTART "
			 "IDENTITY, setval), and messages written since have ids that other "
			 "messages have or had; all of them are published, but those of a key may "
			 "be out of order; the sequence goes on behind raised_to")});
}

static void report_order(struct id_watch *watch, const struct pg_result *ids)
{
	int64_t increment = pg_int(ids, 0, INCREMENT), cache = pg_int(ids, 0, CACHE);
	bool unordered = cache > 1 || increment < 0;

	metric_set(metric_series(&unordered_family, labels_of(watch)), unordered);
	if (unordered && !watch->unordered) {
		owned_text char *cure = xformat("alter sequence %s.message_id_seq increment by 1 "
						"cache 1; restart the writers",
		    watch->schema);
		log_error("id_sequence_unordered", {"database", LOG_TEXT(watch->database)},
		    {"cache", LOG_INT(cache)}, {"increment", LOG_INT(increment)},
		    {"consequence",
			LOG_TEXT("ids do not rise in the order of writing: all messages are "
				 "published, but those of a key may be out of order")},
		    {"cure", LOG_TEXT(cure)});
	} else if (!unordered && watch->unordered) {
		log_info("id_sequence_ordered", {"database", LOG_TEXT(watch->database)});
	}
	watch->unordered = unordered;
}

bool id_watch_step(struct id_watch *watch, struct pg *pg, struct err *err)
{
	owned_text char *highest = xformat("%" PRId64, watch->highest);
	const struct pg_param params[] = {{highest}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *ids =
	    schema_query(pg, watch->schema, sql_message_ids_raise, params, 1, err);

	if (!ids)
		return false;
	report_order(watch, ids);
	watch->highest = pg_int(ids, 0, LAST_ID);
	if (!pg_is_null(ids, 0, RAISED_TO)) {
		report_raise(watch, ids);
		watch->highest = pg_int(ids, 0, RAISED_TO);
	}
	return true;
}
