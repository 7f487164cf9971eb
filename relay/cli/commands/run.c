#include "commands.h"
#include "daemon.h"
#include "session.h"

static int run_relay(const struct call *call)
{
	const struct daemon_options options = {
	    .config_path = session_config_path(call), .drain = call_flag(call, "drain")};
	struct err err;

	return daemon_run(&options, &err) ? 0 : session_failed(&err);
}

static const struct command_option run_options[] = {
    {"drain", NULL,
	"Publish what is there and end. A shard that another process owns is waited for; behind a "
	"record that Kafka refuses, and for a publisher that needs a rebase, the end is status "
	"65."},
    {0},
};

const struct command command_run = {
    .name = "run",
    .arguments = "",
    .summary = "Publishes the publishers of the configuration.",
    .description =
	"Any number of processes may run with one configuration: each shard of a publisher has one "
	"owner, "
	"the others take over within seconds of its death.\n"
	"SIGTERM and SIGINT hand over cleanly (a second one ends at once), SIGHUP reloads the "
	"configuration and logs what needs a restart. Under systemd it reports READY, STOPPING and "
	"the watchdog.\n"
	"It ends at once when the configuration is wrong, the password or a privilege is missing, "
	"the "
	"schema does not fit, an address is occupied, or Postgres does not answer within 10 s of "
	"the "
	"start. Kafka is waited for, and so is Postgres once it has answered.\n",
    .options = run_options,
    .example = "outbox-relay run --config /etc/outbox-relay/relay.ini",
    .run = run_relay,
};
