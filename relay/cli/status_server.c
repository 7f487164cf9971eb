#include "status_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "cleanup.h"
#include "deliver_call.h"
#include "field.h"

static void add_server_process(struct text *out, const json_t *process)
{
	text_addf(out, "relay %s  version %s, started %s: %s\n", field_member(process, "name"),
	    field_member(process, "version"), field_member(process, "started"),
	    json_is_true(json_object_get(process, "ready")) ? "ready" : "not ready");
}

static void add_firing(struct text *out, const json_t *alert)
{
	text_addf(out, "  ! %s ", field_member(alert, "severity"));
	text_add_line(out, field_member(alert, "text"));
	text_addf(out, " (%s, %s since %s)\n", field_member(alert, "alert"),
	    field_member(alert, "state"), field_member(alert, "since"));
}

static void add_unanswering(struct text *out, const json_t *postgres)
{
	const char *error = json_string_value(json_object_get(postgres, "error"));

	if (!error)
		return;
	text_addf(out, "postgres %s\n  ! ", field_member(postgres, "name"));
	text_add_line(out, error);
	text_add(out, "\n");
}

static void add_publisher_line(struct text *out, const json_t *publisher)
{
	const json_t *parked = json_object_get(publisher, "parked");
	const json_t *scheduled = json_object_get(publisher, "scheduled");
	const json_t *rate = json_object_get(publisher, "published_per_s");

	text_addf(out,
	    "publisher %s of postgres %s\n"
	    "  %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " shards have an owner\n"
	    "  %s%s unpublished, the oldest for %.1f s",
	    field_member(publisher, "name"), field_member(publisher, "postgres"),
	    json_integer_value(json_object_get(publisher, "owned")),
	    json_integer_value(json_object_get(publisher, "shards")),
	    json_is_true(json_object_get(publisher, "unpublished_exact")) ? "" : "at least ",
	    field_member(publisher, "unpublished"),
	    (double)field_number(publisher, "oldest_age_ms") / 1000);
	if (json_is_number(rate))
		text_addf(out, "; %.0f records/s by this relay", json_number_value(rate));
	text_addf(out,
	    "\n  parked: %" PRId64 " waiting, %" PRId64 " dead, %" PRId64 " stalled, %" PRId64
	    " paused, %" PRId64 " free, %" PRId64 " behind; scheduled: %" PRId64 "\n",
	    field_number(parked, "waiting"), field_number(parked, "dead"),
	    field_number(parked, "stalled"), field_number(parked, "paused"),
	    field_number(parked, "free"), field_number(parked, "behind"),
	    field_number(scheduled, "rows"));
}

static void add_lookback_line(struct text *out, const json_t *lookback)
{
	text_addf(out,
	    "look-back %s, type %s\n  %" PRId64 " overdue, %" PRId64 " parked, %" PRId64
	    " conflicts, the oldest for %.1f s\n",
	    field_member(lookback, "section"), field_member(lookback, "type"),
	    field_number(lookback, "overdue"), field_number(lookback, "parked"),
	    field_number(lookback, "conflicts"),
	    (double)field_number(lookback, "oldest_age_ms") / 1000);
}

static void add_deliver_line(struct text *out, const json_t *section)
{
	text_addf(out, "deliver %s\n", field_member(section, "section"));
	deliver_call_add_section(out, section);
}

static void add_all_of(struct text *out, const json_t *overview, const char *name,
    void (*add)(struct text *out, const json_t *row))
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(overview, name), i, row)
	{
		add(out, row);
	}
}

bool status_server_print(const struct call *call, struct err *err)
{
	OWNED(text_finish) struct text out = {0};
	json_t *overview = NULL;

	if (!server_ask(call, "/v1/overview", NULL, &overview, err))
		return false;
	if (call_flag(call, "json")) {
		field_print_json("", overview, JSON_COMPACT, "\n");
		return true;
	}
	add_server_process(&out, json_object_get(overview, "process"));
	add_all_of(&out, overview, "alerts", add_firing);
	add_all_of(&out, overview, "postgres", add_unanswering);
	add_all_of(&out, overview, "publishers", add_publisher_line);
	add_all_of(&out, overview, "lookback", add_lookback_line);
	add_all_of(&out, overview, "deliver", add_deliver_line);
	fputs(text_string(&out), stdout);
	json_decref(overview);
	return true;
}
