#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "commands.h"
#include "dev_broker.h"
#include "session.h"
#include "text.h"

enum { MOST_BROKERS = 9, MOST_PARTITIONS = 1000 };

DEFINE_OWNED(struct dev_broker, dev_broker_destroy)

/* "orders" or "orders:6" */
static bool make_topic(struct dev_broker *broker, const char *argument, struct err *err)
{
	const char *colon = strchr(argument, ':');
	owned_text char *name = NULL;
	int64_t partitions = 0;

	if (colon && !text_to_int64(colon + 1, 1, MOST_PARTITIONS, &partitions))
		return err_set(err, ERR_REJECT, "%s: write TOPIC or TOPIC:PARTITIONS", argument);
	name =
	    xformat("%.*s", (int)(colon ? (size_t)(colon - argument) : strlen(argument)), argument);
	return dev_broker_topic(broker, name, (int)partitions, err);
}

static int run_dev_broker(const struct call *call)
{
	OWNED(owned_dev_broker_destroy) struct dev_broker *broker = NULL;
	struct err err;
	sigset_t ends;
	int number;

	/* Signals are blocked before librdkafka starts its threads, which inherit the mask. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	broker = dev_broker_create((int)call_number(call, "brokers", 1),
	    (int)call_number(call, "partitions", 4), (int)call_number(call, "port", 0), &err);
	if (!broker)
		return session_failed(&err);
	for (int i = 0; i < call->argument_count; i++)
		if (!make_topic(broker, call->arguments[i], &err))
			return session_failed(&err);
	puts(dev_broker_bootstrap(broker));
	/* scripts wait for this line, and stdout may be a pipe */
	fflush(stdout);
	sigwait(&ends, &number);
	return 0;
}

static const struct command_option dev_broker_options[] = {
    {"brokers", "N", "Number of brokers (default 1).", 1, MOST_BROKERS},
    {"port", "N", "Port of the first broker; the others get the next ones (default: free ports).",
	1024, 65535 - MOST_BROKERS},
    {"partitions", "N", "Partitions of a topic that is created on first use (default 4).", 1,
	MOST_PARTITIONS},
    {0},
};

const struct command command_dev_broker = {
    .name = "dev-broker",
    .arguments = "[TOPIC[:PARTITIONS]…]",
    .most_arguments = CALL_ARGUMENTS,
    .summary = "Runs an embedded Kafka to try things out.",
    .description =
	"Runs librdkafka's mock cluster, in memory, on loopback ports. It prints its "
	"bootstrap.servers and runs until SIGINT or SIGTERM. It creates topics on first use, and "
	"at once those that you name.\n"
	"Clients of librdkafka, the Java client and franz-go can produce, consume, and commit "
	"offsets in groups. The cluster has no administration: it neither creates topics on "
	"request nor shows or changes settings.\n"
	"It keeps 5 MiB per partition and nothing on disk, and does not model durability, "
	"transactions or topic settings. Use it for trials only.\n",
    .options = dev_broker_options,
    .example = "outbox-relay dev-broker --port 9092 orders:12",
    .no_server = "it starts a broker on this machine; call it there",
    .run = run_dev_broker,
};
