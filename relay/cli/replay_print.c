#include "replay_print.h"

#include <stdio.h>
#include "cleanup.h"

static void add_replay_origin(struct text *out, const json_t *replay)
{
	const char *caller = json_string_value(json_object_get(replay, "caller"));
	const char *reason = json_string_value(json_object_get(replay, "reason"));

	text_addf(out, "  requested by %s%s%s at %s", caller ? caller : "", caller ? " via " : "",
	    field_member(replay, "who"), field_member(replay, "begun_at"));
	if (reason && *reason) {
		text_add(out, ": ");
		text_add_line(out, reason);
	}
	text_add(out, "\n");
}

static void add_replay(struct text *out, const json_t *replay)
{
	owned_text char *filter = json_dumps(json_object_get(replay, "filter"), 0);
	const char *to = json_string_value(json_object_get(replay, "to"));
	const char *error = json_string_value(json_object_get(replay, "error"));
	const char *owner = json_string_value(json_object_get(replay, "owner"));

	text_addf(out, "%s: %s, %s of %s rows published, to %s\n", field_member(replay, "id"),
	    field_member(replay, "state"), field_member(replay, "done"),
	    field_member(replay, "total"), to ? to : "their own topics");
	if (error) {
		text_add(out, "  error: ");
		text_add_line(out, error);
		text_add(out, "\n");
	}
	text_addf(out, "  filter %s, publisher %s\n", filter, field_member(replay, "publisher"));
	add_replay_origin(out, replay);
	if (owner)
		text_addf(out, "  run by %s\n", owner);
}

void replay_print_list(const struct call *call, json_t *replays)
{
	OWNED(text_finish) struct text out = {0};
	const json_t *replay;
	size_t i;

	if (call_flag(call, "json"))
		return field_print_json("", replays, JSON_INDENT(1), "\n");
	json_array_foreach(replays, i, replay)
	{
		add_replay(&out, replay);
	}
	fputs(text_string(&out), stdout);
	if (json_array_size(replays) == 0)
		puts("there was no replay");
	json_decref(replays);
}
