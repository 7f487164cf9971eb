/*
 * Makes librdkafka's configuration from the properties of a section. A table of properties says
 * which the relay sets itself, which may be set, and for which side; the checks against it follow,
 * then the functions that fill the configuration for producers and consumers.
 */
#include "kafka_conf.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cleanup.h"
#include "client_faults.h"
#include "client_files.h"
#include "epoch_check.h"
#include "kafka_client.h"
#include "host.h"
#include "kafka_code.h"
#include "kafka_defaults.h"
#include "logging.h"
#include "suggestion.h"
#include "text.h"

enum { CLOSE_MS = 5000 };

enum side { BOTH, PRODUCER, CONSUMER };

/*
 * Properties that are not simply passed through. allowed: NULL any value; "" none; "low..high" a
 * range; else the permitted words. side: properties of the other kind of client are left out, or
 * librdkafka would warn of each.
 */
struct rule {
	const char *name;
	enum side side;
	const char *allowed;
	const char *why;
};

static const char why_retries[] = "a record that is given up lets its followers pass it";
static const char why_order[] = "an idempotent producer keeps the order of at most 5 requests";
static const char why_acks[] = "a record counts as published when every in-sync replica has it";
static const char why_memory[] = "the queue is bounded by the publisher's memory and max_in_flight";
static const char why_events[] = "the relay serves the client's events itself";
static const char why_group[] = "the relay belongs to no consumer group and commits no offsets";
static const char why_protocol[] = "the relay shares partitions by the classic protocol";
static const char why_reading[] = "the relay chooses what it reads, and from where, itself";

static const struct rule rules[] = {
    /* promises depend on these */
    {"enable.idempotence", PRODUCER, "true", "without it a retry doubles and reorders records"},
    {"enable.gapless.guarantee", PRODUCER, "true",
	"without it the followers of a refused record pass it"},
    {"acks", PRODUCER, "all -1", why_acks},
    {"request.required.acks", PRODUCER, "all -1", why_acks},
    {"message.timeout.ms", PRODUCER, "0", why_retries},
    {"delivery.timeout.ms", PRODUCER, "0", why_retries},
    {"retries", PRODUCER, "2147483647", why_retries},
    {"message.send.max.retries", PRODUCER, "2147483647", why_retries},
    {"max.in.flight", PRODUCER, "1..5", why_order},
    {"max.in.flight.requests.per.connection", PRODUCER, "1..5", why_order},
    {"queuing.strategy", PRODUCER, "fifo", "records of a key must keep their order"},
    {"partitioner", PRODUCER, "",
	"the relay computes each partition as the Java client does, from the logged count"},
    {"transactional.id", PRODUCER, "", "the relay names its transactions itself"},
    {"delivery.report.only.error", PRODUCER, "false",
	"a record without a report could never be acknowledged"},
    /* the relay sets these itself */
    {"queue.buffering.max.messages", PRODUCER, "", why_memory},
    {"queue.buffering.max.kbytes", PRODUCER, "", why_memory},
    {"enabled_events", BOTH, "", why_events},
    {"log.queue", BOTH, "false", why_events},
    {"statistics.interval.ms", BOTH, "", why_events},
    {"internal.termination.signal", BOTH, "", "signals belong to the relay"},
    {"test.mock.num.brokers", BOTH, "",
	"each client would get a cluster of its own; outbox-relay dev-broker runs one for all"},
    {"group.id", CONSUMER, "", why_group},
    {"group.instance.id", CONSUMER, "", why_group},
    {"enable.auto.commit", CONSUMER, "", why_group},
    {"auto.commit.enable", CONSUMER, "", why_group},
    {"enable.auto.offset.store", CONSUMER, "", why_group},
    {"offset.store.method", CONSUMER, "", why_group},
    {"group.protocol", CONSUMER, "classic", why_protocol},
    {"group.remote.assignor", CONSUMER, "", why_protocol},
    {"isolation.level", CONSUMER, "", why_reading},
    {"enable.partition.eof", CONSUMER, "", why_reading},
    {"auto.offset.reset", CONSUMER, "", why_reading},
    /* any value, but only for producers or only for consumers */
    {"linger.ms", PRODUCER},
    {"queue.buffering.max.ms", PRODUCER},
    {"queue.buffering.backpressure.threshold", PRODUCER},
    {"retry.backoff.ms", PRODUCER},
    {"batch.num.messages", PRODUCER},
    {"batch.size", PRODUCER},
    {"compression.codec", PRODUCER},
    {"compression.type", PRODUCER},
    {"compression.level", PRODUCER},
    {"request.timeout.ms", PRODUCER},
    {"sticky.partitioning.linger.ms", PRODUCER},
    {"transaction.timeout.ms", PRODUCER},
    {"produce.offset.report", PRODUCER},
    {"partition.assignment.strategy", CONSUMER},
    {"session.timeout.ms", CONSUMER},
    {"heartbeat.interval.ms", CONSUMER},
    {"group.protocol.type", CONSUMER},
    {"coordinator.query.interval.ms", CONSUMER},
    {"max.poll.interval.ms", CONSUMER},
    {"auto.commit.interval.ms", CONSUMER},
    {"queued.min.messages", CONSUMER},
    {"queued.max.messages.kbytes", CONSUMER},
    {"fetch.wait.max.ms", CONSUMER},
    {"fetch.message.max.bytes", CONSUMER},
    {"max.partition.fetch.bytes", CONSUMER},
    {"fetch.max.bytes", CONSUMER},
    {"fetch.min.bytes", CONSUMER},
    {"fetch.error.backoff.ms", CONSUMER},
    {"check.crcs", CONSUMER},
    {"offset.store.path", CONSUMER},
    {"offset.store.sync.interval.ms", CONSUMER},
    {"consume.callback.max.messages", CONSUMER},
};

static const struct rule *find_rule(const char *name)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (text_equal(rules[i].name, name))
			return &rules[i];
	return NULL;
}

static bool is_allowed_value(const char *allowed, const char *value)
{
	size_t length = strlen(value);
	int64_t low, high, number;
	int parsed = 0;

	if (sscanf(allowed, "%" SCNd64 "..%" SCNd64 "%n", &low, &high, &parsed) == 2 &&
	    allowed[parsed] == '\0')
		return text_to_int64(value, low, high, &number);
	for (const char *word = allowed; *word; word += *word == ' ') {
		size_t word_length = strcspn(word, " ");

		if (word_length == length && strncasecmp(word, value, length) == 0)
			return true;
		word += word_length;
	}
	return false;
}

static bool is_secret(const char *name)
{
	static const char *const parts[] = {"password", "secret", "jaas", ".pem", "ssl_",
	    "oauthbearer.config", "extensions", "token"};

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (strstr(name, parts[i]))
			return true;
	return false;
}

/* Values are shown of properties that are known and hold no secret: a misspelt one may hold one. */
static bool refuse_property(const struct kafka_settings *kafka,
    const struct kafka_property *property, const char *value, const char *why, const char *cure,
    struct err *err)
{
	return err_set(err, ERR_CONFIG, "%s: [kafka \"%s\"] %s%s%s: %s%s", property->origin,
	    kafka->name, property->name, value ? " = " : "", value ? value : "", why, cure);
}

static bool check_rule(const struct kafka_settings *kafka, const struct kafka_property *property,
    const struct rule *rule, struct err *err)
{
	char cure[128] = "; remove it";

	if (!rule || !rule->allowed || is_allowed_value(rule->allowed, property->value))
		return true;
	if (rule->allowed[0])
		snprintf(cure, sizeof cure, "; remove it or use %.*s",
		    (int)strcspn(rule->allowed, " "), rule->allowed);
	return refuse_property(kafka, property, property->value, rule->why, cure, err);
}

/* Suggests the nearest name of librdkafka's table of properties, a row of which begins with its
 * name. */
static bool refuse_unknown_property(
    const struct kafka_settings *kafka, const struct kafka_property *property, struct err *err)
{
	struct suggestion nearest = suggestion_begin(property->name);
	owned_text char *table = NULL;
	size_t size;
	FILE *stream = open_memstream(&table, &size);

	if (stream) {
		rd_kafka_conf_properties_show(stream);
		fclose(stream);
	}
	char *rest = table;
	for (char *row; (row = strsep(&rest, "\n"));) {
		row[strcspn(row, " ")] = '\0';
		suggestion_offer(&nearest, row, row);
	}

	owned_text char *why = xformat("librdkafka knows no such property%s", nearest.note);
	return refuse_property(
	    kafka, property, NULL, why, "; see its CONFIGURATION.md for the names", err);
}

static bool set_property(rd_kafka_conf_t *conf, const struct kafka_settings *kafka,
    const struct kafka_property *property, struct err *err)
{
	char text[512];

	switch (rd_kafka_conf_set(conf, property->name, property->value, text, sizeof text)) {
	case RD_KAFKA_CONF_OK:
		return true;
	case RD_KAFKA_CONF_UNKNOWN:
		return refuse_unknown_property(kafka, property, err);
	default:
		/* The text of librdkafka may repeat the value. */
		if (is_secret(property->name))
			return refuse_property(
			    kafka, property, "(hidden)", "librdkafka refuses the value", "", err);
		return refuse_property(kafka, property, property->value, text, "", err);
	}
}

/* Every property is checked, also those that this side leaves out. */
static bool apply_properties(
    rd_kafka_conf_t *conf, const struct kafka_settings *kafka, enum side side, struct err *err)
{
	bool has_servers = false;

	for (int i = 0; i < kafka->property_count; i++) {
		const struct kafka_property *property = &kafka->properties[i];
		const struct rule *rule = find_rule(property->name);

		if (!check_rule(kafka, property, rule, err))
			return false;
		if ((!rule || rule->side == BOTH || rule->side == side) &&
		    !set_property(conf, kafka, property, err))
			return false;
		/* The last value counts; an empty one names no server. */
		if (text_equal(property->name, "bootstrap.servers") ||
		    text_equal(property->name, "metadata.broker.list"))
			has_servers = property->value[0] != '\0';
	}
	if (has_servers)
		return true;
	return err_set(err, ERR_CONFIG,
	    "[kafka \"%s\"] bootstrap.servers is missing: set bootstrap.servers = host:port in "
	    "that section, or %s",
	    kafka->name,
	    text_equal(kafka->name, "main") ? "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS"
					    : "OUTBOX_RELAY_KAFKA_<NAME>_BOOTSTRAP_SERVERS");
}

/*
 * Its "error" (syslog 3) is a broker that cannot be reached, which it retries for ever: a warning
 * here. That gapless mode is "experimental", and a fatal error, which also comes as an event and is
 * routine, are for debugging. So is AUTOCREATE, which comes with each refresh of the metadata: a
 * broker that old could serve no idempotent producer, and the embedded broker only looks as old.
 */
static enum log_level level_of(int level, const char *facility, const char *text)
{
	if (text_equal(facility, "FATAL") || text_equal(facility, "AUTOCREATE") || level > 6 ||
	    (text_equal(facility, "CONFWARN") && strstr(text, "enable.gapless.guarantee")))
		return LOG_LEVEL_DEBUG;
	if (level <= 2)
		return LOG_LEVEL_ERROR;
	return level <= 4 ? LOG_LEVEL_WARN : LOG_LEVEL_INFO;
}

const char kafka_conf_epoch[] = "a new epoch could double the records of other partitions";

/*
 * After an answer "out of order" behind a request that failed, for example when a leader dies,
 * librdkafka's idempotent producer silently begins a new epoch. It then sends again the records of
 * other partitions that have no answer yet, and the broker cannot tell that it has these records
 * already (github.com/confluentinc/librdkafka, issue 4953). librdkafka announces the new epoch
 * beforehand, in the debug context "eos". A producer with a fatal error begins no epoch, and its
 * successor reads the tails. epoch_check.c checks that the running librdkafka makes this
 * announcement.
 *
 * This breaks the rule that a log callback may not call librdkafka. It is safe here: at this place
 * librdkafka itself raises fatal errors in the same way, in the same thread and without a lock.
 */
static void refuse_new_epoch(const rd_kafka_t *handle, const char *facility)
{
	if (text_equal(facility, "ERRSEQ") || text_equal(facility, "UNKPID"))
		rd_kafka_test_fatal_error((rd_kafka_t *)handle,
		    RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, kafka_conf_epoch);
}

/* Called from librdkafka's threads. */
static void on_kafka_log(
    const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	refuse_new_epoch(handle, facility);
	if (client_faults_note(handle, text))
		return;
	log_event(level_of(level, facility, text), "kafka_log",
	    {"client", LOG_TEXT(handle ? rd_kafka_name(handle) : "")},
	    {"facility", LOG_TEXT(facility)}, {"text", LOG_TEXT(text)});
}

static void on_muted_log(
    const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	(void)level;
	(void)text;
	refuse_new_epoch(handle, facility);
}

void kafka_conf_mute(rd_kafka_conf_t *conf)
{
	rd_kafka_conf_set_log_cb(conf, on_muted_log);
}

bool kafka_conf_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct err *err)
{
	char text[512];

	if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
		return true;
	return err_set(err, ERR_FATAL, "librdkafka %s refuses %s = %s: %s", rd_kafka_version_str(),
	    name, value, text);
}

static bool set_conf_number(rd_kafka_conf_t *conf, const char *name, int64_t value, struct err *err)
{
	char text[32];

	snprintf(text, sizeof text, "%" PRId64, value < INT_MAX ? value : (int64_t)INT_MAX);
	return kafka_conf_set(conf, name, text, err);
}

/* The property has two names. */
bool kafka_conf_linger(
    rd_kafka_conf_t *conf, const struct kafka_settings *kafka, int64_t linger_ms, struct err *err)
{
	for (int i = 0; i < kafka->property_count; i++)
		if (text_equal(kafka->properties[i].name, "linger.ms") ||
		    text_equal(kafka->properties[i].name, "queue.buffering.max.ms"))
			return true;
	return set_conf_number(conf, "linger.ms", linger_ms, err);
}

bool kafka_conf_bound_ready(rd_kafka_conf_t *conf, int64_t messages, int64_t bytes, struct err *err)
{
	return set_conf_number(conf, "queued.min.messages", messages, err) &&
	       set_conf_number(conf, "queued.max.messages.kbytes", bytes / 1024, err);
}

/* Sets the defaults of one side, except those that other settings decide. */
static bool set_side_defaults(rd_kafka_conf_t *conf, enum kafka_default_side side, struct err *err)
{
	for (int i = 0; i < kafka_default_count; i++) {
		const struct kafka_default *row = &kafka_defaults[i];

		if (row->side == side && row->value &&
		    !kafka_conf_set(conf, row->name, row->value, err))
			return false;
	}
	return true;
}

static bool set_common(rd_kafka_conf_t *conf, struct err *err)
{
	rd_kafka_conf_set_log_cb(conf, on_kafka_log);
	return set_side_defaults(conf, KAFKA_DEFAULT_ALL, err);
}

/* librdkafka takes socket.timeout.ms from transaction.timeout.ms. */
static bool set_transactions(rd_kafka_conf_t *conf, const char *transactional_id, struct err *err)
{
	return kafka_conf_set(conf, "transactional.id", transactional_id, err) &&
	       set_side_defaults(conf, KAFKA_DEFAULT_TRANSACTIONS, err);
}

static int64_t conf_number(rd_kafka_conf_t *conf, const char *name)
{
	char text[32] = "";
	size_t size = sizeof text;
	int64_t number = 0;

	rd_kafka_conf_get(conf, name, text, &size);
	return text_to_int64(text, 0, INT64_MAX, &number) ? number : 0;
}

static int64_t largest_record(rd_kafka_conf_t *conf)
{
	return conf_number(conf, "message.max.bytes");
}

/*
 * librdkafka's queue must never fill up: the caller has at most `bytes` in flight, plus the part of
 * one record that exceeds them. A record larger than message.max.bytes never enters the queue.
 */
static bool set_queue(rd_kafka_conf_t *conf, int64_t bytes, int64_t messages, struct err *err)
{
	int64_t kbytes = bytes / 1024 + bytes / 4096 + largest_record(conf) / 1024 + 1024;

	return set_conf_number(conf, "queue.buffering.max.kbytes", kbytes, err) &&
	       set_conf_number(
		   conf, "queue.buffering.max.messages", messages + messages / 4 + 1000, err);
}

/*
 * refuse_new_epoch depends on the debug context "eos". A section may take that context out
 * (`debug = -eos`), so the function runs after the section's properties. librdkafka adds the
 * context to those that are set.
 */
static bool set_epoch_debug(rd_kafka_conf_t *conf, struct err *err)
{
	return kafka_conf_set(conf, "debug", "eos", err);
}

rd_kafka_conf_t *kafka_conf_producer(const struct kafka_settings *kafka,
    const char *transactional_id, int64_t queue_bytes, int64_t queue_messages, struct err *err)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	rd_kafka_conf_set_events(
	    conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_STATS);
	/*
	 * In this order a section replaces defaults, and set_queue knows the section's
	 * message.max.bytes.
	 */
	if (set_common(conf, err) && set_side_defaults(conf, KAFKA_DEFAULT_PRODUCER, err) &&
	    (!transactional_id || set_transactions(conf, transactional_id, err)) &&
	    apply_properties(conf, kafka, PRODUCER, err) && set_epoch_debug(conf, err) &&
	    set_queue(conf, queue_bytes, queue_messages, err))
		return conf;
	rd_kafka_conf_destroy(conf);
	return NULL;
}

rd_kafka_conf_t *kafka_conf_client(const struct kafka_settings *kafka, struct err *err)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	if (set_common(conf, err) && apply_properties(conf, kafka, CONSUMER, err))
		return conf;
	rd_kafka_conf_destroy(conf);
	return NULL;
}

static bool set_defaults(rd_kafka_conf_t *conf, const char *const *defaults, struct err *err)
{
	for (; defaults[0]; defaults += 2)
		if (!kafka_conf_set(conf, defaults[0], defaults[1], err))
			return false;
	return true;
}

/* librdkafka makes no client that might not fetch the largest record. */
static bool set_fetch(rd_kafka_conf_t *conf, struct err *err)
{
	int64_t largest = largest_record(conf);

	return conf_number(conf, "fetch.max.bytes") >= largest ||
	       set_conf_number(conf, "fetch.max.bytes", largest, err);
}

static bool set_reader(
    rd_kafka_conf_t *conf, const char *isolation, const char *reset, struct err *err)
{
	return kafka_conf_set(conf, "isolation.level", isolation, err) &&
	       kafka_conf_set(conf, "enable.partition.eof", "true", err) &&
	       kafka_conf_set(conf, "enable.auto.commit", "false", err) &&
	       kafka_conf_set(conf, "auto.offset.reset", reset, err) && set_fetch(conf, err);
}

rd_kafka_conf_t *kafka_conf_reader(const struct kafka_settings *kafka, const char *isolation,
    const char *reset, const char *const *defaults, struct err *err)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	/* In this order a section replaces defaults, but nothing that set_reader sets. */
	if (set_common(conf, err) && set_defaults(conf, defaults, err) &&
	    apply_properties(conf, kafka, CONSUMER, err) && set_reader(conf, isolation, reset, err))
		return conf;
	rd_kafka_conf_destroy(conf);
	return NULL;
}

/*
 * Finds errors that only appear when a client is created (a certificate that cannot be read, a
 * mechanism that is not built in, values that exclude each other). The client has no broker, so it
 * connects to nothing.
 */
static bool check_by_making(rd_kafka_type_t type, rd_kafka_conf_t *conf,
    const struct kafka_settings *kafka, struct err *err)
{
	rd_kafka_t *handle;

	if (!conf)
		return false;
	rd_kafka_conf_set_log_cb(conf, NULL);
	if (!kafka_conf_set(conf, "bootstrap.servers", "", err) ||
	    !kafka_conf_set(conf, "log_level", "0", err)) {
		rd_kafka_conf_destroy(conf);
		return false;
	}
	handle = kafka_client_open(type, conf, kafka, err);
	if (!handle)
		return false;
	kafka_client_close(handle, CLOSE_MS);
	return true;
}

bool kafka_conf_check(const struct kafka_settings *kafka, bool transactions, struct err *err)
{
	const char *transactional_id = transactions ? "outbox-relay" : NULL;

	/* librdkafka does not name the file. */
	if (!client_files_readable(kafka, err) ||
	    !check_by_making(RD_KAFKA_CONSUMER, kafka_conf_client(kafka, err), kafka, err) ||
	    !check_by_making(RD_KAFKA_PRODUCER,
		kafka_conf_producer(kafka, transactional_id, 1 << 20, 1000, err), kafka, err))
		return false;
	if (!transactions || epoch_check(err))
		return true;
	return err_prefix(err, "[kafka \"%s\"] delivery = exactly-once", kafka->name);
}

/* Everything that is not here is worth a retry: it blames no record and loses none. */
static const struct kafka_code kinds[] = {
    /* this record, or this topic's name, for good */
    {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_INVALID_RECORD, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_POLICY_VIOLATION, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_INVALID_PARTITIONS, ERR_REJECT},
    {RD_KAFKA_RESP_ERR_INVALID_REPLICATION_FACTOR, ERR_REJECT},
    /* somebody has to grant or to give a password */
    {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, ERR_DENIED},
    {RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, ERR_DENIED},
    {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, ERR_DENIED},
    {RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ERR_DENIED},
    {RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED, ERR_DENIED},
    {RD_KAFKA_RESP_ERR__AUTHENTICATION, ERR_DENIED},
    /* the client and the cluster do not fit each other */
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM, ERR_CONFIG},
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, ERR_CONFIG},
    {RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION, ERR_CONFIG},
    {RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE, ERR_CONFIG},
    {RD_KAFKA_RESP_ERR__INVALID_ARG, ERR_CONFIG},
};

enum err_kind kafka_error_kind(rd_kafka_resp_err_t code)
{
	return (enum err_kind)kafka_code_meaning(
	    kinds, sizeof kinds / sizeof *kinds, code, ERR_RETRY);
}

const char *kafka_conf_library(void)
{
	return rd_kafka_version_str();
}

/* --- values in force -------------------------------------------------------------------------- */

const char *kafka_conf_allowed(const char *name)
{
	const struct rule *rule = find_rule(name);

	return rule ? rule->allowed : NULL;
}

char *kafka_conf_in_force(
    const struct kafka_settings *kafka, bool transactions, int64_t linger_ms, struct err *err)
{
	rd_kafka_conf_t *conf =
	    kafka_conf_producer(kafka, transactions ? "" : NULL, 1 << 20, 1000, err);
	struct text line = {0};

	if (conf && !kafka_conf_linger(conf, kafka, linger_ms, err)) {
		rd_kafka_conf_destroy(conf);
		return NULL;
	}
	if (!conf)
		return NULL;
	for (int i = 0; i < kafka_default_count; i++) {
		const struct kafka_default *row = &kafka_defaults[i];
		char value[512] = "";
		size_t size = sizeof value;

		if (!row->value || (row->side == KAFKA_DEFAULT_TRANSACTIONS && !transactions))
			continue;
		rd_kafka_conf_get(conf, row->name, value, &size);
		text_addf(&line, "%s%s = %s", line.length ? ", " : "", row->name, value);
	}
	rd_kafka_conf_destroy(conf);
	return line.data;
}

/* --- encryption ------------------------------------------------------------------------------ */

static const char *property_value(const struct kafka_settings *kafka, const char *name)
{
	const char *value = NULL;

	for (int i = 0; i < kafka->property_count; i++)
		if (text_equal(kafka->properties[i].name, name))
			value = kafka->properties[i].value;
	return value;
}

/* Each server is HOST, HOST:PORT, or one of these behind a protocol and "://". */
static bool has_remote_server(const char *servers)
{
	owned_text char *list = xstrdup(servers);
	char *rest = NULL;

	for (char *server = strtok_r(list, ", ", &rest); server;
	     server = strtok_r(NULL, ", ", &rest)) {
		const char *protocol = strstr(server, "://");
		const char *host = protocol ? protocol + 3 : server;
		/* In brackets, colons belong to an IPv6 address. */
		const char *bracket = *host == '[' ? strchr(host, ']') : NULL;
		const char *port = strchr(bracket ? bracket : host, ':');

		if (!host_is_loopback(host, port ? (size_t)(port - host) : strlen(host)))
			return true;
	}
	return false;
}

bool kafka_conf_is_exposed(const struct kafka_settings *kafka)
{
	const char *protocol = property_value(kafka, "security.protocol");
	const char *servers = property_value(kafka, "bootstrap.servers");

	if (!servers)
		servers = property_value(kafka, "metadata.broker.list");
	return servers && has_remote_server(servers) &&
	       (!protocol || strcasecmp(protocol, "plaintext") == 0 ||
		   strcasecmp(protocol, "sasl_plaintext") == 0);
}
