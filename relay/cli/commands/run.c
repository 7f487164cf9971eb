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
	"Publishes all existing messages and exits. Waits for a shard that another process owns. "
	"Exits with 65 if Kafka refuses a record that others wait behind, or if a publisher "
	"needs a rebase."},
    {0},
};

const struct command command_run = {
    .name = "run",
    .arguments = "",
    .summary = "Publishes the messages of all configured publishers.",
    .description =
	"Any number of processes may run with one configuration: one of them owns each shard of "
	"a publisher, and another one takes over within seconds after the owner dies.\n"
	"SIGTERM and SIGINT hand the shards over and stop the process (a second signal stops it "
	"at once). SIGHUP reloads the configuration and logs the keys that need a restart. Under "
	"systemd the process reports READY, STOPPING and the watchdog.\n"
	"It exits at once if the configuration is wrong, a password or privilege is missing, the "
	"schema does not fit, an address is occupied, or Postgres does not answer within 10 s of "
	"the start. It waits for Kafka, and also for Postgres once Postgres has answered.\n",
    .options = run_options,
    .example = "outbox-relay run --config /etc/outbox-relay/relay.ini",
    .no_server = "it starts the relay on this machine; start it where it shall run",
    .run = run_relay,
};
