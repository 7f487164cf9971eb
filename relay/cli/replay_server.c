/*
 * `replay` over --server. A new replay is previewed, confirmed and posted; then, as after --resume,
 * its job is watched to its end. Begin at replay_server_run.
 */
#include "replay_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "confirm.h"
#include "field.h"
#include "replay_print.h"
#include "session.h"

/* --- which rows ------------------------------------------------------------------------------ */

/* "topic=orders" becomes a member; the relay judges the values. */
static bool add_replay_term(json_t *filter, const char *term, struct err *err)
{
	const char *equals = strchr(term, '=');
	owned_text char *name = equals ? xformat("%.*s", (int)(equals - term), term) : NULL;

	if (!equals)
		return err_set(err, ERR_REJECT,
		    "'%.60s' chooses no rows: write NAME=VALUE, for example topic=orders", term);
	if (json_object_get(filter, name))
		return err_set(err, ERR_REJECT, "%.60s= is given twice: give it once", name);
	return json_object_set_new(filter, name, json_string(equals + 1)) == 0 ||
	       err_set(err, ERR_REJECT, "%.60s= is not UTF-8", name);
}

static bool choose_replayed(const struct call *call, json_t *filter, struct err *err)
{
	for (int i = 0; i < call->argument_count; i++)
		if (!add_replay_term(filter, call->arguments[i], err))
			return false;
	if (call->argument_count == 0 && !call_flag(call, "all"))
		return err_set(err, ERR_REJECT,
		    "nothing says which rows: name some (topic=orders, ids=10..20, …), or say "
		    "--all");
	return call->argument_count == 0 || !call_flag(call, "all") ||
	       err_set(err, ERR_REJECT, "--all does not go with terms: take one of them away");
}

/* The members that the preview and the order have in common. */
static json_t *replay_body(const struct call *call, const json_t *filter)
{
	json_t *body = json_pack("{s:O}", "filter", filter);
	const char *to = call_text(call, "to", NULL);
	const char *publisher = call_text(call, "publisher", NULL);

	if (to)
		json_object_set_new(body, "to", json_string(to));
	if (publisher)
		json_object_set_new(body, "publisher", json_string(publisher));
	if (call_flag(call, "rate"))
		json_object_set_new(body, "rate", json_integer(call_number(call, "rate", 0)));
	return body;
}

/* --- a new replay ---------------------------------------------------------------------------- */

static void print_replay_preview(const json_t *preview)
{
	const json_t *topic;
	size_t i;

	printf("replay of %s rows, ids %s to %s\n", field_member(preview, "count"),
	    field_member(preview, "from_id"), field_member(preview, "to_id"));
	json_array_foreach(json_object_get(preview, "topics"), i, topic)
	{
		printf("  %s from %s to %s\n", field_member(topic, "count"),
		    field_member(topic, "topic"), field_member(topic, "to"));
	}
	fflush(stdout);
}

static bool confirm_previewed_replay(
    const struct call *call, const json_t *preview, struct err *err)
{
	owned_text char *question = xformat("Replay %s rows?", field_member(preview, "count"));

	return confirm_call(call, question, err);
}

/* body: with the members of the preview; gets those of the order. */
static bool post_replay(const struct call *call, json_t *body, const json_t *preview,
    json_t **ret_answer, struct err *err)
{
	json_object_set(body, "token", json_object_get(preview, "token"));
	if (json_object_set_new(body, "reason", json_string(confirm_reason(call))) != 0)
		return err_set(err, ERR_REJECT, "the reason is not UTF-8");
	return server_ask(call, "/v1/replays", body, ret_answer, err);
}

static bool begin_over_server(const struct call *call, json_t *body, struct err *err)
{
	json_t *preview = NULL, *answer = NULL;
	bool done = server_ask(call, "/v1/replays/preview", body, &preview, err);

	if (done)
		print_replay_preview(preview);
	if (done && call_flag(call, "dry-run"))
		puts("nothing was sent: --dry-run");
	else if (done)
		done = confirm_previewed_replay(call, preview, err) &&
		       post_replay(call, body, preview, &answer, err) &&
		       server_watch_job(call, field_member(answer, "job"),
			   field_member(answer, "postgres"), "rows", err);
	json_decref(preview);
	json_decref(answer);
	return done;
}

static bool replay_chosen(const struct call *call, struct err *err)
{
	json_t *filter = json_object(), *body = NULL;
	bool done = confirm_check(call, err) && choose_replayed(call, filter, err);

	if (done) {
		body = replay_body(call, filter);
		done = begin_over_server(call, body, err);
	}
	json_decref(filter);
	json_decref(body);
	return done;
}

/* --- the others ------------------------------------------------------------------------------ */

static bool resume_over_server(const struct call *call, struct err *err)
{
	owned_text char *id = xformat("replay-%" PRId64, call_number(call, "resume", 0));
	owned_text char *path = xformat("/v1/jobs/%s/resume", id);
	json_t *body = json_pack(
	    "{s:s, s:s*}", "reason", "resumed", "publisher", call_text(call, "publisher", NULL));
	json_t *answer = NULL;
	bool done;

	if (call_flag(call, "rate")) {
		json_decref(body);
		return err_set(err, ERR_REJECT,
		    "--rate does not go with --resume over --server: the relay goes on at the rate "
		    "of the replay. Leave it out, or resume on the database");
	}
	done = body ? server_ask(call, path, body, &answer, err)
		    : err_set(err, ERR_REJECT, "--publisher is not UTF-8");
	done = done && server_watch_job(call, id, field_member(answer, "postgres"), "rows", err);

	json_decref(body);
	json_decref(answer);
	return done;
}

static bool list_replays_of_relay(const struct call *call, struct err *err)
{
	OWNED(text_finish) struct text path = {0};
	json_t *replays;

	text_add(&path, "/v1/replays");
	server_add_argument(&path, "publisher", call_text(call, "publisher", NULL));
	if (!server_ask_list(call, text_string(&path), &replays, err))
		return false;
	replay_print_list(call, replays);
	return true;
}

int replay_server_run(const struct call *call)
{
	struct err err;
	bool done = call_flag(call, "list")     ? list_replays_of_relay(call, &err)
		    : call_flag(call, "resume") ? resume_over_server(call, &err)
						: replay_chosen(call, &err);

	return done ? 0 : session_failed(&err);
}
