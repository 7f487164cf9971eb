#include "publisher_call.h"

#include <inttypes.h>
#include <stdio.h>
#include "publisher_orders.h"
#include "session.h"
#include "text.h"

static bool pause_or_resume(struct session *session, bool pauses, struct err *err)
{
	const struct publisher_pause order = {.publisher = session->call->arguments[0],
	    .reason = call_text(session->call, "reason", ""),
	    .pauses = pauses};
	const char *state = pauses ? "paused" : "not paused";
	int64_t audit;

	if (!publisher_pause(session->pg, session->postgres, &order, &audit, err))
		return false;
	if (audit)
		printf("publisher %s is %s (outbox.audit %" PRId64
		       "); running relays heed it within a second\n",
		    order.publisher, state, audit);
	else
		printf(
		    "publisher %s was %s already: nothing was changed\n", order.publisher, state);
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

int publisher_call_pause(const struct call *call, bool pauses)
{
	return session_run(call, check_pause_reason, pauses ? pause_named : resume_named);
}

const struct command_option publisher_pause_options[] = {
    {"reason", "TEXT", "The reason, stored in outbox.audit."},
    SESSION_POSTGRES_OPTION,
    {0},
};
