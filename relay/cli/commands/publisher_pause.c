#include "commands.h"
#include "publisher_call.h"

static int run_publisher_pause(const struct call *call)
{
	return publisher_call_pause(call, true);
}

const struct command command_publisher_pause = {
    .name = "publisher pause",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Pauses a publisher, or one topic of it.",
    .description =
	"Stores the pause in the database. Each process that owns one of the publisher's shards "
	"heeds it within a second: it sends no further record, but keeps its lease and notes the "
	"records that Kafka acknowledges. Messages wait in the table, and each key keeps its "
	"order. "
	"Scheduled and parked messages wait as well. The pause lasts over restarts of relays, "
	"until "
	"`publisher resume`.\n"
	"With --topic, only the messages of that Kafka topic wait; other topics of the publisher "
	"continue. Running relays park the messages of the topic in the state `paused`, and so "
	"copy each of them into `outbox.parked`. The topic need not have messages yet.\n"
	"Other publishers continue, and so does a replay. Partitions of the table stay until the "
	"publisher has published their messages, so the table grows.\n",
    .options = publisher_pause_options,
    .example = "outbox-relay publisher pause billing --reason maintenance",
    .run = run_publisher_pause,
};
