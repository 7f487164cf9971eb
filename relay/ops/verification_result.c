#include "verification_result.h"

static json_t *samples_json(const struct verify_verdict *verdict)
{
	json_t *object = json_object();

	for (int kind = 0; kind < VERIFY_KINDS; kind++) {
		json_t *list = json_array();

		for (int i = 0; i < VERIFY_SAMPLES && verdict->samples[kind][i]; i++)
			json_array_append_new(list, json_string(verdict->samples[kind][i]));
		json_object_set_new(object, verify_kinds[kind].name, list);
	}
	return object;
}

static json_t *verified_topics_json(const struct verify_topics *topics, bool wants_missing)
{
	json_t *list = json_array();
	const char *name;
	bool missing;

	for (int i = 0; (name = verify_topics_name(topics, i, &missing)); i++)
		if (missing == wants_missing)
			json_array_append_new(list, json_string(name));
	return list;
}

json_t *verification_result(
    const struct verification *verification, const struct verification_facts *facts)
{
	const struct verify_verdict *verdict = verification_verdict(verification);
	const struct verify_topics *topics = verification_topics(verification);
	struct verify_topics_figures figures = verify_topics_figures(topics);
	json_t *object = json_pack("{ss, ss, ss?, ss?, sb, sI, sI, sI, sI, sI, sI, sI, sI}",
	    "publisher", verification_publisher(verification)->name, "database", facts->place,
	    "from", facts->from[0] ? facts->from : NULL, "to", facts->to[0] ? facts->to : NULL,
	    "clean", verify_is_clean(verdict, facts->no_duplicates), "committed",
	    (json_int_t)verdict->committed, "acknowledged", (json_int_t)verdict->acknowledged,
	    "published", (json_int_t)verdict->published, "pending", (json_int_t)verdict->pending,
	    "parked", (json_int_t)verdict->parked, "scheduled", (json_int_t)verdict->scheduled,
	    "skipped", (json_int_t)verdict->skipped, "before_start", (json_int_t)verdict->before);

	for (int kind = 0; kind < VERIFY_KINDS; kind++)
		json_object_set_new(
		    object, verify_kinds[kind].name, json_integer(verdict->found[kind]));
	json_object_set_new(object, "not_judged",
	    json_pack("{sI, sI, sI, sI, sI}", "expired_rows", (json_int_t)verdict->expired,
		"rows_without_headers", (json_int_t)verdict->unmarked, "older_records",
		(json_int_t)verdict->older, "newer_records", (json_int_t)verdict->newer,
		"sequences", (json_int_t)verdict->sequences_unjudged));

	json_object_set_new(object, "records", json_integer(figures.records));
	json_object_set_new(object, "records_of_others", json_integer(figures.others));
	json_object_set_new(object, "topics", verified_topics_json(topics, false));
	json_object_set_new(object, "missing_topics", verified_topics_json(topics, true));
	json_object_set_new(object, "samples", samples_json(verdict));
	json_object_set_new(object, "seconds", json_real(facts->seconds));
	return object;
}
