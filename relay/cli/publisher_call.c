#include "publisher_call.h"

#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "field.h"
#include "publisher_orders.h"
#include "server.h"
#include "session.h"
#include "text.h"

/* topic NULL: the whole publisher. audit 0: nothing was changed. */
static void print_paused(const char *publisher, const char *topic, bool paused, int64_t audit)
{
	const char *state = paused ? "paused" : "not paused";
	owned_text char *of_topic = topic ? xformat("topic %s of ", topic) : xstrdup("");

	if (audit)
		printf("%spublisher %s is %s (outbox.audit %" PRId64
		       "); running relays heed it within a second\n",
		    of_topic, publisher, state, audit);
	else
		printf("%spublisher %s was %s already: nothing was changed\n", of_topic, publisher,
		    state);
}

static bool pause_or_resume(struct session *session, bool pauses, struct err *err)
{
	const struct publisher_pause order = {.publisher = session->call->arguments[0],
	    .topic = call_text(session->call, "topic", NULL),
	    .reason = call_text(session->call, "reason", ""),
	    .pauses = pauses};
	int64_t audit;

	if (!publisher_pause(session->pg, session->postgres, &order, &audit, err))
		return false;
	print_paused(order.publisher, order.topic, pauses, audit);
	return true;
}

static bool pause_named(struct session *session, struct err *err)
{
	return pause_or_resume(session, true, err);
}

static bool resume_named(struct session *session, struct err *err)
{
	return pause_or_resume(session, false, err);
}

static bool check_pause_reason(const struct call *call, struct err *err)
{
	return !text_is_blank(call_text(call, "reason", "")) ||
	       err_set(err, ERR_REJECT, "say why: --reason TEXT is kept in outbox.audit");
}

bool publisher_call_send(const struct call *call, const char *publisher, const char *order,
    json_t *body, json_t **ret_answer, struct err *err)
{
	OWNED(text_finish) struct text path = {0};
	bool done;

	if (call_flag(call, "postgres") && call->argument_count > 0 &&
	    !json_object_get(body, "postgres")) {
		json_decref(body);
		return err_set(err, ERR_REJECT,
		    "--postgres does not go with a name over --server: leave it out, since the "
		    "relay "
		    "knows the database of each of its publishers");
	}
	text_add(&path, "/v1/publishers/");
	server_add_name(&path, publisher);
	text_addf(&path, "/%s", order);
	done = server_add_reason(body, call, err) &&
	       server_ask(call, text_string(&path), body, ret_answer, err);
	json_decref(body);
	return done;
}

static int pause_over_server(const struct call *call, bool pauses)
{
	const char *topic = call_text(call, "topic", NULL);
	json_t *answer = NULL;
	struct err err;

	if (!check_pause_reason(call, &err) ||
	    !publisher_call_send(call, call->arguments[0], pauses ? "pause" : "resume",
		json_pack("{s:s*}", "topic", topic), &answer, &err))
		return session_failed(&err);
	print_paused(call->arguments[0], topic, pauses, field_number(answer, "audit"));
	json_decref(answer);
	return 0;
}

int publisher_call_pause(const struct call *call, bool pauses)
{
	if (server_is_used(call))
		return pause_over_server(call, pauses);
	return session_run(call, check_pause_reason, pauses ? pause_named : resume_named);
}

const struct command_option publisher_pause_options[] = {
    {"topic", "TOPIC", "Only the messages of this topic, and not the whole publisher."},
    {"reason", "TEXT", "The reason, stored in outbox.audit."},
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};
