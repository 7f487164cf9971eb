#include "job_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include "cleanup.h"
#include "database.h"
#include "field_json.h"
#include "sql_files.h"

struct pg_result *job_list_query(struct pg *pg, const struct postgres_settings *postgres,
    const struct job_list *list, struct err *err)
{
	owned_text char *most = xformat("%" PRId64, list->most);
	const struct pg_param params[] = {{list->before_at ? list->before_at : "infinity"},
	    {list->before_job ? list->before_job : ""}, {most}, {list->job}, {list->kind},
	    {list->publishers}, {list->is_open}, {list->sections}};

	return database_query(pg, postgres, sql_job_page, params, 8, err);
}

json_t *job_list_row(const struct pg_result *rows, int i)
{
	static const struct field_column texts[] = {{"id", JOB_ID}, {"kind", JOB_KIND},
	    {"publisher", JOB_PUBLISHER}, {"section", JOB_SECTION}, {"state", JOB_STATE},
	    {"who", JOB_WHO}, {"caller", JOB_CALLER}, {"reason", JOB_REASON},
	    {"begun_at", JOB_BEGUN_AT}, {"noted_at", JOB_NOTED_AT}, {"ended_at", JOB_ENDED_AT},
	    {"done", JOB_DONE}, {"total", JOB_TOTAL}, {"changed", JOB_CHANGED},
	    {"published", JOB_PUBLISHED}, {"refused", JOB_REFUSED}, {"error", JOB_ERROR},
	    {"to", JOB_TARGET}, {"owner", JOB_OWNER}};
	json_t *object = FIELD_JSON_TEXTS(rows, i, texts);

	json_object_set_new(
	    object, "exact", json_boolean(text_equal(pg_value(rows, i, JOB_EXACT), "t")));
	json_object_set_new(object, "per_second",
	    pg_is_null(rows, i, JOB_PER_SECOND)
		? json_null()
		: json_real(strtod(pg_value(rows, i, JOB_PER_SECOND), NULL)));
	json_object_set_new(object, "seconds_left", field_json_number(rows, i, JOB_SECONDS_LEFT));
	json_object_set_new(object, "rate_limit", field_json_number(rows, i, JOB_RATE));
	json_object_set_new(
	    object, "filter", field_json_numbers_as_text(field_json_parsed(rows, i, JOB_FILTER)));
	json_object_set_new(object, "clean",
	    pg_is_null(rows, i, JOB_CLEAN)
		? json_null()
		: json_boolean(text_equal(pg_value(rows, i, JOB_CLEAN), "t")));
	return object;
}
