#include "upkeep_lock.h"

#include <stdio.h>
#include "logging.h"
#include "schema_query.h"
#include "sql_files.h"
#include "text.h"

static void note_holder(
    struct upkeep_lock *lock, const struct postgres_settings *postgres, const char *holder)
{
	const char *lasting = text_equal(lock->seen, holder) ? holder : "";

	/* Found twice in a row: another relay's upkeep holds the lock for moments only. */
	if (*lasting && !text_equal(lock->holder, lasting))
		log_warn("upkeep_lock_held", {"database", LOG_TEXT(postgres->name)},
		    {"holder", LOG_TEXT(lasting)},
		    {"consequence",
			LOG_TEXT(
			    "partitions stay as they are; upkeep tries again every few seconds")},
		    {"cure", LOG_TEXT("end that session, unless it is a relay that moves rows")});
	else if (!*lasting && *lock->holder)
		log_info("upkeep_lock_free", {"database", LOG_TEXT(postgres->name)});
	text_copy(lock->holder, sizeof lock->holder, lasting);
	text_copy(lock->seen, sizeof lock->seen, holder);
}

bool upkeep_lock_look(struct upkeep_lock *lock, struct pg *pg,
    const struct postgres_settings *postgres, bool busy, struct err *err)
{
	char holder[sizeof lock->holder] = "";

	if (busy) {
		OWNED(owned_pg_result_destroy)
		struct pg_result *holders =
		    schema_query(pg, postgres->schema, sql_upkeep_holder, NULL, 0, err);

		if (!holders)
			return false;
		if (pg_rows(holders) > 0)
			snprintf(holder, sizeof holder, "the lock \"%s\" of upkeep is held by %s",
			    pg_value(holders, 0, 0), pg_value(holders, 0, 1));
	}
	note_holder(lock, postgres, holder);
	return true;
}
