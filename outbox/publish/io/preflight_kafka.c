#include "preflight.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "tail.h"
#include "text.h"

/*
 * The checks of a cluster and its topics. preflight_topic_settings is the list of checks on a
 * topic's settings; the functions before it are one check each. The others ask the brokers, and the
 * last part tries to read the ends of topics.
 */

enum {
	TAIL_END_MS = 100,
	BATCH_SIZE = 1000000,        /* librdkafka's default */
	MESSAGE_MAX_BYTES = 1048576, /* the relay's default (kafka_conf.c); a test compares both */
};

struct topic {
	struct preflight *report;
	const struct kafka_settings *kafka;
	const char *name;
	char *place;
	const struct topic_setting *settings;
	int count;
	int64_t oldest_age_ms;
};

static const char *topic_setting(const struct topic *topic, const char *name)
{
	for (int i = 0; i < topic->count; i++)
		if (text_equal(topic->settings[i].name, name))
			return topic->settings[i].value;
	return NULL;
}

/* Returns `missing` if there is no such setting, or it is not a number. */
static int64_t topic_setting_number(const struct topic *topic, const char *name, int64_t missing)
{
	const char *value = topic_setting(topic, name);
	int64_t result;

	return value && text_to_int64(value, INT64_MIN, INT64_MAX, &result) ? result : missing;
}

static int64_t kafka_property_number(
    const struct kafka_settings *kafka, const char *name, int64_t missing)
{
	int64_t result;

	for (int i = kafka->property_count - 1; i >= 0; i--)
		if (text_equal(kafka->properties[i].name, name) &&
		    text_to_int64(kafka->properties[i].value, 0, INT64_MAX, &result))
			return result;
	return missing;
}

static void check_replication(const struct topic *topic)
{
	int64_t factor = topic_setting_number(topic, "replication.factor", 0);
	int64_t in_sync = topic_setting_number(topic, "min.insync.replicas", 1);

	if (factor < 2)
		preflight_add(topic->report, PREFLIGHT_UNSAFE, topic->place,
		    "raise it to 3 with kafka-reassign-partitions",
		    "replication factor %" PRId64 ": the loss of one broker's disk loses records",
		    factor);
	if (in_sync < 2)
		preflight_add(topic->report, PREFLIGHT_UNSAFE, topic->place,
		    "set min.insync.replicas = 2 on the topic",
		    "min.insync.replicas = %" PRId64
		    ": a record counts as written when one broker has it",
		    in_sync);
	else if (in_sync >= factor)
		preflight_add(topic->report, PREFLIGHT_WARN, topic->place,
		    "raise the replication factor above it",
		    "min.insync.replicas = %" PRId64 " of %" PRId64
		    " replicas: publishing stops when one broker is away",
		    in_sync, factor);
	else
		preflight_add(topic->report, PREFLIGHT_OK, topic->place, NULL,
		    "replication factor %" PRId64 ", min.insync.replicas %" PRId64, factor,
		    in_sync);
}

static void check_election(const struct topic *topic)
{
	const char *unclean = topic_setting(topic, "unclean.leader.election.enable");

	if (unclean && text_equal(unclean, "true"))
		preflight_add(topic->report, PREFLIGHT_UNSAFE, topic->place,
		    "set unclean.leader.election.enable = false on the topic",
		    "a replica that lacks acknowledged records may become the leader");
}

/* The default of both settings is Long.MAX_VALUE: the broker never flushes by itself. */
static void check_flush(const struct topic *topic)
{
	if (topic_setting_number(topic, "flush.messages", INT64_MAX) < INT64_MAX ||
	    topic_setting_number(topic, "flush.ms", INT64_MAX) < INT64_MAX)
		preflight_add(topic->report, PREFLIGHT_INFO, topic->place, NULL,
		    "flush.messages = %s, flush.ms = %s: the brokers flush by themselves, which "
		    "costs throughput",
		    topic_setting(topic, "flush.messages"), topic_setting(topic, "flush.ms"));
	else
		preflight_add(topic->report, PREFLIGHT_INFO, topic->place, NULL,
		    "the brokers leave flushing to the operating system: replicas that lose power "
		    "together lose their last records");
}

static void check_compaction(const struct topic *topic)
{
	const char *policy = topic_setting(topic, "cleanup.policy");

	if (policy && strstr(policy, "compact"))
		preflight_add(topic->report, PREFLIGHT_WARN, topic->place,
		    "write every row of this topic with a key",
		    "cleanup.policy = %s: a record with a null key is refused for good", policy);
}

static void check_sizes(const struct topic *topic)
{
	int64_t limit = topic_setting_number(topic, "max.message.bytes", INT64_MAX);
	int64_t batch = kafka_property_number(topic->kafka, "batch.size", BATCH_SIZE);
	int64_t message =
	    kafka_property_number(topic->kafka, "message.max.bytes", MESSAGE_MAX_BYTES);
	owned_text char *cure =
	    xformat("raise max.message.bytes on the topic, or set batch.size "
		    "and message.max.bytes in [kafka \"%s\"] to %" PRId64 " at most",
		topic->kafka->name, limit);

	if (message > limit)
		preflight_add(topic->report, PREFLIGHT_WARN, topic->place, cure,
		    "max.message.bytes = %" PRId64 " is below message.max.bytes = %" PRId64
		    ": a record between them is refused for good",
		    limit, message);
	else if (batch > limit)
		preflight_add(topic->report, PREFLIGHT_WARN, topic->place, cure,
		    "max.message.bytes = %" PRId64 " is below batch.size = %" PRId64
		    ": full batches are refused and sent again one by one",
		    limit, batch);
}

/* A negative retention means none; brokers refuse timestamps older than the maximum difference. */
static void check_age(const struct topic *topic)
{
	int64_t retention = topic_setting_number(topic, "retention.ms", -1);
	int64_t past = topic_setting_number(topic, "message.timestamp.before.max.ms",
	    topic_setting_number(topic, "message.timestamp.difference.max.ms", INT64_MAX));

	if (retention >= 0 && topic->oldest_age_ms > retention)
		preflight_add(topic->report, PREFLIGHT_WARN, topic->place,
		    "raise retention.ms until they are consumed, or set timestamp = publish",
		    "rows wait since %" PRId64 " s, longer than retention.ms = %" PRId64
		    ": Kafka may delete them at once",
		    topic->oldest_age_ms / 1000, retention);
	if (topic->oldest_age_ms > past)
		preflight_add(topic->report, PREFLIGHT_WARN, topic->place,
		    "raise message.timestamp.difference.max.ms, or set timestamp = publish",
		    "rows wait since %" PRId64 " s; timestamps older than %" PRId64
		    " s are refused and stop the publisher",
		    topic->oldest_age_ms / 1000, past / 1000);
}

void preflight_topic_settings(struct preflight *report, const struct kafka_settings *kafka,
    const char *name, const struct topic_setting *settings, int count, int64_t oldest_age_ms)
{
	owned_text char *place = xformat("topic %s", name);
	const struct topic topic = {report, kafka, name, place, settings, count, oldest_age_ms};

	check_replication(&topic);
	check_election(&topic);
	check_flush(&topic);
	check_compaction(&topic);
	check_sizes(&topic);
	check_age(&topic);
}

static const char *bootstrap_servers(const struct kafka_settings *kafka)
{
	for (int i = kafka->property_count - 1; i >= 0; i--)
		if (text_equal(kafka->properties[i].name, "bootstrap.servers") ||
		    text_equal(kafka->properties[i].name, "metadata.broker.list"))
			return kafka->properties[i].value;
	return "";
}

static void add_missing_topic(struct preflight *report, const struct kafka_settings *kafka,
    const char *topic, const char *why)
{
	owned_text char *place = xformat("topic %s", topic);
	owned_text char *command = xformat(
	    "kafka-topics.sh --bootstrap-server %s --create --topic", bootstrap_servers(kafka));
	owned_text char *one = xformat("create it: %s %s", command, topic);
	owned_text char *all = xformat("create them: for topic in {}; do %s $topic; done", command);

	preflight_set_item(
	    preflight_add(report, PREFLIGHT_FAIL, place, one, "%s", why), all, topic);
}

bool preflight_leaders(struct preflight *report, struct topic_metadata *metadata, const char *topic,
    int timeout_ms, struct err *err)
{
	owned_text char *place = xformat("topic %s", topic);
	OWNED(text_finish) struct text numbers = {0};
	int count = 0;

	if (!topic_metadata_leaderless(metadata, topic, timeout_ms, &numbers, &count, err))
		return false;
	if (count > 0)
		preflight_add(report, PREFLIGHT_FAIL, place,
		    "start the brokers that hold its replicas",
		    "partition%s %s %s no leader: messages for %s wait, and are parked "
		    "after stall_after",
		    count > 1 ? "s" : "", text_string(&numbers), count > 1 ? "have" : "has",
		    count > 1 ? "them" : "it");
	return true;
}

bool preflight_topic_exists(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, const char *topic, int timeout_ms, struct err *err)
{
	struct topic_setting *settings = NULL;
	struct err failed = {0};
	int count = 0;
	bool described =
	    topic_metadata_settings(metadata, topic, timeout_ms, &settings, &count, &failed);

	topic_metadata_settings_free(settings, count);
	if (!described && failed.kind == ERR_RETRY)
		return err_set(err, ERR_RETRY, "%s", failed.message);
	if (!described && failed.kind == ERR_REJECT)
		add_missing_topic(report, kafka, topic, failed.message);
	return true;
}

bool preflight_topic(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, const char *topic, int64_t oldest_age_ms, int timeout_ms,
    struct err *err)
{
	owned_text char *place = xformat("topic %s", topic);
	struct topic_setting *settings = NULL;
	struct err failed;
	int count = 0;

	if (topic_metadata_settings(metadata, topic, timeout_ms, &settings, &count, &failed)) {
		preflight_topic_settings(report, kafka, topic, settings, count, oldest_age_ms);
		topic_metadata_settings_free(settings, count);
		return true;
	}
	switch (failed.kind) {
	case ERR_REJECT:
		add_missing_topic(report, kafka, topic, failed.message);
		return true;
	case ERR_RETRY:
		return err_set(err, ERR_RETRY, "%s", failed.message);
	default:
		preflight_add(report, PREFLIGHT_UNSAFE, place,
		    failed.kind == ERR_CONFIG ? "use a Kafka that tells them; dev-broker does not"
					      : "allow the relay DESCRIBE_CONFIGS on the topic",
		    "its settings cannot be read: %s", failed.message);
		return true;
	}
}

bool preflight_cluster(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, int timeout_ms, struct err *err)
{
	owned_text char *place = xformat("kafka %s", kafka->name);
	int brokers = 0;

	if (!topic_metadata_broker_count(metadata, timeout_ms, &brokers, err))
		return err_prefix(err, "no broker answers at %s", bootstrap_servers(kafka));

	preflight_add(
	    report, PREFLIGHT_OK, place, NULL, "%d broker%s", brokers, brokers == 1 ? "" : "s");
	if (brokers == 1)
		preflight_add(report, PREFLIGHT_UNSAFE, place, "run three brokers or more",
		    "one broker: its loss loses acknowledged records");
	return true;
}

/* --- tails ---------------------------------------------------------------------------------- */

static void wait_for_tail(const struct tail *tail, int64_t until)
{
	struct pollfd fd = {.fd = tail_fd(tail), .events = POLLIN};
	int64_t wait = tail_wait(tail) < until ? tail_wait(tail) : until, now = clock_ms();

	if (wait > now)
		poll(&fd, 1, (int)(wait - now));
}

/* True: this question is answered. */
static bool judge_tail(struct preflight *report, const struct tail_event *event)
{
	owned_text char *place = xformat("topic %s", event->topic ? event->topic : "");

	/* A record, or a broker that is away for now, is no answer. */
	if (event->kind == TAIL_RECORD ||
	    (event->kind == TAIL_FAILED && event->failure.kind == ERR_RETRY))
		return false;
	if (event->kind == TAIL_FAILED && event->failure.kind == ERR_DENIED)
		preflight_add(report, PREFLIGHT_WARN, place,
		    "allow the relay READ on the topic, or set delivery = at-least-once and resume "
		    "= none",
		    "its records cannot be read (%s): after a crash up to max_in_flight records "
		    "are published again, and a database that went back in time is not noticed",
		    event->failure.message);
	return true;
}

/* Other checks report missing topics, and brokers that do not answer. */
void preflight_tails(struct preflight *report, const struct kafka_settings *kafka,
    const char *const *topics, int count, int timeout_ms)
{
	struct tail *tail = tail_create(kafka, "read_uncommitted", timeout_ms);
	int64_t until = clock_ms() + timeout_ms;
	struct tail_event event;
	int asked = 0;

	for (int i = 0; i < count; i++)
		asked += tail_ask(tail,
		    &(struct tail_question){.topic = topics[i], .offset = TAIL_FROM_END},
		    &event.failure);
	while (asked > 0 && clock_ms() < until) {
		wait_for_tail(tail, until);
		while (asked > 0 && tail_next(tail, clock_ms(), &event))
			asked -= judge_tail(report, &event);
	}
	tail_destroy(tail, TAIL_END_MS);
}
