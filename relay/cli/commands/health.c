#include <stdio.h>
#include <string.h>
#include "admin_client.h"
#include "commands.h"
#include "session.h"

enum { TIMEOUT_S = 3, OK = 200 };

/* The lines of the answer about what is not well: "[-] main loop: last turn 12000 ms ago". */
static void add_faults(const char *answer, struct text *faults)
{
	static const char mark[] = "[-] ";

	for (const char *line = answer; *line;) {
		size_t length = strcspn(line, "\n");

		if (strncmp(line, mark, strlen(mark)) == 0) {
			text_add(faults, faults->length ? "; " : "");
			text_append(faults, line + strlen(mark), length - strlen(mark));
		}
		line += length + (line[length] == '\n');
	}
}

/* False: the process is not well, or nobody knows. */
static bool ask_health(
    const struct admin_place *place, int timeout_ms, struct text *body, struct err *err)
{
	OWNED(text_finish) struct text faults = {0};
	int status;

	if (!admin_get(place, "/livez", timeout_ms, &status, body, err))
		return false;
	if (status == OK)
		return true;
	add_faults(text_string(body), &faults);
	return err_set(err, ERR_RETRY, "the process at %s answers with HTTP %d: %s", place->listen,
	    status, faults.length ? faults.data : "is it another program?");
}

static int run_health(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	OWNED(text_finish) struct text body = {0};
	struct admin_place place;
	int timeout_ms = (int)call_number(call, "timeout", TIMEOUT_S) * 1000;

	if (!config)
		return session_failed(&err);
	if (!config->admin_listen[0]) {
		err_set(&err, ERR_CONFIG,
		    "[admin] listen is empty, so nobody can tell whether the process is well: set "
		    "it, for example listen = 9187, or OUTBOX_RELAY_ADMIN_LISTEN");
		return session_failed(&err);
	}
	place = admin_place_of_admin(config);
	if (!ask_health(&place, timeout_ms, &body, &err)) {
		session_failed(&err);
		return EXIT_FOUND;
	}
	fputs(text_string(&body), stdout);
	return 0;
}

static const struct command_option health_options[] = {
    {"timeout", "SECONDS", "The longest wait for the answer (default 3).", 1, 60},
    {0},
};

const struct command command_health = {
    .name = "health",
    .arguments = "",
    .summary = "Says whether the running process is well: the probe of a container.",
    .description =
	"Calls /livez of the process at [admin] listen. Exits with 0 when each of its loops turns, "
	"and with 1 when one of them is blocked, or when no process answers in time; one line on "
	"standard error says which. An outage of Kafka or PostgreSQL is no reason to restart a "
	"process, so it does not count here: /readyz and `outbox-relay status` report it.\n"
	"It needs neither a shell nor curl, and reads the same configuration as `run`.\n",
    .options = health_options,
    .example = "outbox-relay health --config /etc/outbox-relay/relay.ini",
    .no_server =
	"it checks the process on this machine; call it there, or use status with --server",
    .run = run_health,
};
