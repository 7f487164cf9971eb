#include "config_rows.h"
#include <assert.h>
#include <string.h>

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define MIB (INT64_C(1) << 20)

#define LIST(member) offsetof(struct config, member), offsetof(struct config, member##_count)

/* clang-format off */
const struct config_kind_row config_kinds[CONFIG_KINDS] = {
	[CONFIG_POSTGRES] = {"postgres", false, false, LIST(postgres), sizeof(struct postgres_settings),
		"A database with an outbox, and how its message table is kept."},
	[CONFIG_KAFKA] = {"kafka", true, false, LIST(kafka), sizeof(struct kafka_settings),
		"A Kafka cluster. Each key is a librdkafka property under its own name, for example "
		"bootstrap.servers or security.protocol. With _file behind it, as in sasl.password_file, "
		"it names a file that holds the value."},
	[CONFIG_PUBLISHER] = {"publisher", false, false, offsetof(struct config, publishers),
		offsetof(struct config, publisher_count), sizeof(struct config_publisher),
		"A reader of the message table with its own progress. Without any, there is \"main\".",
		.origin = offsetof(struct config_publisher, origin)},
	[CONFIG_TOPIC] = {"topic", false, true, offsetof(struct config, topics),
		offsetof(struct config, topic_count), sizeof(struct config_topic),
		"What is particular to one topic, named as Kafka spells it. A topic without a section has "
		"the defaults."},
	[CONFIG_CHECK] = {"check", false, true, offsetof(struct config, checks),
		offsetof(struct config, check_count), sizeof(struct config_check),
		"A service that is asked about undecided messages of the look-back: may this be published?",
		.origin = offsetof(struct config_check, origin)},
	[CONFIG_LOOKBACK] = {"lookback", false, true, offsetof(struct config, lookbacks),
		offsetof(struct config, lookback_count), sizeof(struct config_lookback),
		"The look-back of some business types: prepare, commit and rollback are read from a topic, "
		"what is committed goes to the message table, and the business is asked about the rest.",
		.origin = offsetof(struct config_lookback, origin)},
	[CONFIG_DELIVER] = {"deliver", false, true, offsetof(struct config, delivers),
		offsetof(struct config, deliver_count), sizeof(struct config_deliver),
		"An application that gets the messages of topics by HTTP, each a POST (docs/reference/sidecar.md): "
		"copies are dropped, rules are kept, and what fails is tried again and dead-lettered.",
		.origin = offsetof(struct config_deliver, origin)},
	[CONFIG_SENDER] = {"sender", false, true, offsetof(struct config, senders),
		offsetof(struct config, sender_count), sizeof(struct config_sender),
		"An application that sends by the HTTP interface: its tokens, and for which sections and "
		"business types it speaks. With sections and types both have to fit."},
	[CONFIG_API] = {"api", false, false, 0, 0, 0,
		"The HTTP interface of the look-back: for applications that send without a Kafka client, "
		"and for operators."},
	[CONFIG_ADMIN] = {"admin", false, false, 0, 0, 0,
		"The HTTP endpoint for health and metrics."},
	[CONFIG_LOG] = {"log", false, false, 0, 0, 0,
		"The log on standard error."},
};

static const char *const retentions[] = {"drop", "detach", NULL};
static const char *const timestamps[] = {"created", "publish", NULL};
static const char *const safeties[] = {"warn", "strict", NULL};
static const char *const deliveries[] = {"at-least-once", "exactly-once", NULL};
static const char *const resumes[] = {"tail", "none", NULL};
static const char *const refusals[] = {"block", "pass", "stop", NULL};
static const char *const headers[] = {"full", "none", NULL};
static const char *const transports[] = {"http", "grpc", "sql", NULL};
static const char *const forms[] = {"single", "batch", NULL};
static const char *const modes[] = {"binary", "structured", NULL};
static const char *const policies[] = {"dead-letter", "process", "fail", NULL};
static const char *const starts[] = {"earliest", "latest", "block", NULL};
static const char *const answers[] = {"no", "yes", NULL};
static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const formats[] = {"logfmt", "json", NULL};

#define POSTGRES(member) CONFIG_POSTGRES, #member, .offset = offsetof(struct postgres_settings, member)
#define POSTGRES_MS(member) \
	CONFIG_POSTGRES, #member, CONFIG_DURATION, offsetof(struct postgres_settings, member##_ms)
#define PUBLISHER(member) CONFIG_PUBLISHER, #member, \
	.offset = offsetof(struct config_publisher, settings.member)
#define PUBLISHER_MS(member) \
	CONFIG_PUBLISHER, #member, CONFIG_DURATION, offsetof(struct config_publisher, settings.member##_ms)
#define CHECK(member) CONFIG_CHECK, #member, .offset = offsetof(struct config_check, member)
#define CHECK_MS(member) \
	CONFIG_CHECK, #member, CONFIG_DURATION, offsetof(struct config_check, member##_ms)
#define LOOKBACK(member) CONFIG_LOOKBACK, #member, .offset = offsetof(struct config_lookback, member)
#define LOOKBACK_MS(member) \
	CONFIG_LOOKBACK, #member, CONFIG_DURATION, offsetof(struct config_lookback, member##_ms)
#define DELIVER(member) CONFIG_DELIVER, #member, .offset = offsetof(struct config_deliver, member)
#define DELIVER_MS(member) \
	CONFIG_DELIVER, #member, CONFIG_DURATION, offsetof(struct config_deliver, member##_ms)
#define SENDER(member) CONFIG_SENDER, #member, .offset = offsetof(struct config_sender, member)
#define API(member) CONFIG_API, #member, .offset = offsetof(struct config, api.member)

const struct config_row config_rows[] = {
	{POSTGRES(dsn), .type = CONFIG_TEXT, .default_value = "",
		.help = "Connection string or URI as libpq takes it. Empty: DATABASE_URL, else the PG* "
			"variables alone."},
	{CONFIG_POSTGRES, "dsn_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the dsn, instead of dsn."},
	{POSTGRES(schema), .type = CONFIG_SCHEMA, .default_value = "outbox",
		.help = "The schema of the outbox in the database."},
	{POSTGRES_MS(partition_every), "1d", SECOND, 365 * DAY,
		.help = "The time that one partition of the message table covers."},
	{POSTGRES(partitions_ahead), .type = CONFIG_INTEGER, .default_value = "1",
		.low = 1, .high = 100, .reloadable = true,
		.help = "Partitions made ahead of the current one."},
	{POSTGRES_MS(retain), "3d", 0, 3650 * DAY, .reloadable = true,
		.help = "How long published rows stay before their partition goes."},
	{POSTGRES(retention), .type = CONFIG_CHOICE, .default_value = "drop", .choices = retentions,
		.reloadable = true,
		.help = "What becomes of a partition that is past its time: dropped, or detached and left "
			"as a table."},
	{POSTGRES_MS(upkeep_interval), "60s", 100, DAY, .reloadable = true,
		.help = "The time between two rounds of partition upkeep."},

	{PUBLISHER(postgres), .type = CONFIG_SECTION, .refers = CONFIG_POSTGRES, .default_value = "main",
		.help = "The [postgres] section the publisher reads from."},
	{PUBLISHER(kafka), .type = CONFIG_SECTION, .refers = CONFIG_KAFKA, .default_value = "main",
		.help = "The [kafka] section the publisher publishes to."},
	{CONFIG_PUBLISHER, "shards", CONFIG_INTEGER, offsetof(struct config_publisher, shards), "0",
		.low = 0, .high = 64,
		.help = "The number of shards of the publisher; 0 takes what the database says, another number "
			"must agree with it."},
	{PUBLISHER(max_in_flight), .type = CONFIG_INTEGER, .default_value = "20000",
		.low = 1, .high = 1000000,
		.help = "Records produced and not yet covered by stored progress; as many may be published "
			"again after a crash. exactly-once: the most in one transaction, 40000 unless "
			"it is said; as many of the next may go out before the progress of the last is "
			"stored."},
	{PUBLISHER(memory), .type = CONFIG_BYTES, .default_value = "24MiB",
		.low = MIB, .high = 4096 * MIB,
		.help = "Memory for rows that are read and not yet acknowledged, the producer's queue "
			"included, and for names of records that a take-over found in Kafka: a quarter "
			"of it at most."},
	{PUBLISHER_MS(lease), "5s", 100, HOUR,
		.help = "How long an owner that went silent keeps a shard from the others."},
	{PUBLISHER_MS(poll_busy), "3ms", 0, 10 * SECOND, .reloadable = true,
		.help = "The pause between two polls while rows come."},
	{PUBLISHER_MS(poll_idle), "70ms", 1, MINUTE, .reloadable = true,
		.help = "The longest pause between two polls when none come."},
	{PUBLISHER_MS(ack_interval), "200ms", 0, MINUTE, .reloadable = true,
		.help = "How long an acknowledgement may be kept before the progress is stored."},
	{PUBLISHER_MS(stall_after), "60s", SECOND, DAY,
		.help = "A producer that makes no progress for so long is made anew; records of a "
			"partition that takes none while others do are parked."},
	{PUBLISHER_MS(topic_idle), "10m", SECOND, DAY,
		.help = "A topic that gets no messages for so long is closed: the Kafka client forgets it, "
			"and a take-over does not read its partitions. A topic that the cluster does not have "
			"for so long leaves the log."},
	{PUBLISHER(delivery), .type = CONFIG_CHOICE, .default_value = "at-least-once",
		.choices = deliveries,
		.help = "at-least-once: a fault may repeat records. exactly-once: records go out in "
			"transactions of Kafka, and consumers with isolation.level=read_committed see each "
			"of them once; it needs resume = tail."},
	{PUBLISHER(resume), .type = CONFIG_CHOICE, .default_value = "tail", .choices = resumes,
		.help = "What comes before the first record after a take-over, or of a new producer: each "
			"partition is read from its noted offset to its end and what stands there already is "
			"not published again; or nothing, and what was in flight comes twice."},
	{PUBLISHER_MS(retry_first), "1s", 10, HOUR,
		.help = "The pause before a record that Kafka refused for good is tried again; each "
			"further pause is twice as long. Chance takes up to half of a pause off."},
	{PUBLISHER_MS(retry_max), "5m", 10, DAY,
		.help = "The longest pause between two attempts of a refused record."},
	{PUBLISHER(max_attempts), .type = CONFIG_INTEGER, .default_value = "10",
		.low = 1, .high = 1000000,
		.help = "The attempts of a record that Kafka refuses for good; after so many it is dead "
			"and waits for an operator (outbox-relay parked)."},
	{PUBLISHER(timestamp), .type = CONFIG_CHOICE, .default_value = "created", .choices = timestamps,
		.help = "The timestamp of a record: when its row was created, or when it is published."},
	{PUBLISHER(safety), .type = CONFIG_CHOICE, .default_value = "warn", .choices = safeties,
		.help = "What to do on a cluster that can lose acknowledged data: warn, or refuse to run."},
	{CONFIG_PUBLISHER, "topics", CONFIG_LIST, offsetof(struct config_publisher, topics), "*",
		.help = "The topics that its messages may go to; orders.* stands for all that begin so. A "
			"message for another topic is parked as dead. Look-back, dead-letter and retry "
			"topics of this configuration, and topics that begin with __, are never among them."},

	{CONFIG_TOPIC, "on_refusal", CONFIG_CHOICE, offsetof(struct config_topic, on_refusal), "block",
		.choices = refusals,
		.help = "What follows when Kafka refuses a record of this topic for good. block: it is "
			"parked, and the later ones of its key wait behind it. pass: it is parked, and the "
			"later ones of its key go on, which gives up their order. stop: the publisher stops."},
	{CONFIG_TOPIC, "headers", CONFIG_CHOICE, offsetof(struct config_topic, headers), "full",
		.choices = headers,
		.help = "The relay's own headers in records of this topic. full: outbox-id and "
			"outbox-position. none: neither, which saves about 125 bytes a record; "
			"publishers of the topic need resume = none and delivery = at-least-once, and "
			"verify does not judge its rows."},

	{CHECK(transport), .type = CONFIG_CHOICE, .default_value = "http", .choices = transports,
		.help = "How it is asked: a POST with JSON, a unary call of lookback.v1.Checker/Check, or a "
			"function in the business's own database."},
	{CHECK(url), .type = CONFIG_TEXT, .default_value = "",
		.help = "Where it is asked (http, grpc). Empty: only at URLs that messages bring."},
	{CHECK(dsn), .type = CONFIG_TEXT, .default_value = "",
		.help = "The database that is asked (sql), as libpq takes it."},
	{CONFIG_CHECK, "dsn_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the dsn, instead of dsn."},
	{CHECK(function), .type = CONFIG_TEXT, .default_value = "lookback_check",
		.help = "The function that is asked (sql), of (biz_type text, biz_ids text[]), which "
			"returns rows of (biz_id text, decision text)."},
	{CHECK(read_only), .type = CONFIG_CHOICE, .default_value = "yes", .choices = answers,
		.help = "Whether it is asked in a transaction that cannot write (sql). A function that "
			"keeps a barrier against late commits needs no."},
	{CHECK(types), .type = CONFIG_LIST, .default_value = "",
		.help = "The business types whose messages may ask here. Empty: any."},
	{CHECK(allow), .type = CONFIG_TEXT, .default_value = "",
		.help = "Destinations that a message's own check_url must match: scheme, host, port and "
			"the beginning of the path, as in https://*.example.com/lookback, separated by "
			"commas. Empty: a message brings none."},
	{CHECK(networks), .type = CONFIG_TEXT, .default_value = "",
		.help = "Addresses that may be connected to although they are not public, as in "
			"10.2.0.0/16, separated by commas."},
	{CHECK(secret), .type = CONFIG_TEXT, .default_value = "",
		.help = "The key that signs requests (Standard Webhooks): whsec_ and 24 to 64 bytes in "
			"base64. Empty: they are not signed."},
	{CONFIG_CHECK, "secret_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the secret, instead of secret."},
	{CHECK(old_secret), .type = CONFIG_TEXT, .default_value = "",
		.help = "A second key, that signs as well while keys change."},
	{CONFIG_CHECK, "old_secret_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the old_secret, instead of old_secret."},
	{CHECK(tls_ca), .type = CONFIG_TEXT, .default_value = "",
		.help = "A file of certificates (PEM) that are trusted. Empty: the system's."},
	{CHECK(tls_certificate), .type = CONFIG_TEXT, .default_value = "",
		.help = "A file (PEM) with our own certificate, for services that ask for one."},
	{CHECK(tls_key), .type = CONFIG_TEXT, .default_value = "",
		.help = "The file (PEM) of its key."},
	{CHECK_MS(timeout), "10s", 1, HOUR,
		.help = "How long a request may take."},
	{CHECK_MS(connect_timeout), "3s", 1, HOUR,
		.help = "How much of it may pass before there is a connection."},
	{CHECK(max_answer), .type = CONFIG_BYTES, .default_value = "64KiB", .low = 64, .high = 16 * MIB,
		.help = "The largest answer that is read. A batch whose answer cannot fit is refused."},
	{CHECK(batch), .type = CONFIG_INTEGER, .default_value = "1", .low = 1, .high = 1000,
		.help = "The most ids in one request. More than one: {\"ids\": [...]}."},
	{CHECK(host_in_flight), .type = CONFIG_INTEGER, .default_value = "64", .low = 1, .high = 1000,
		.help = "The most requests at once to one host and port. This and the next two, and the "
			"breakers, are of each [lookback] section in each process: two sections in three "
			"relays send six times as many."},
	{CHECK(type_in_flight), .type = CONFIG_INTEGER, .default_value = "64", .low = 1, .high = 1000,
		.help = "The most requests at once about one business type, in each process."},
	{CHECK(rate), .type = CONFIG_INTEGER, .default_value = "1000", .low = 0, .high = 1000000,
		.help = "The most requests a second, of each [lookback] section in each process; 0: as many "
			"as come."},
	{CHECK_MS(retry_first), "5s", 10, DAY,
		.help = "The pause before the business is asked again after an answer that decides "
			"nothing; each further pause is twice as long, a fifth more or less."},
	{CHECK_MS(retry_max), "10m", 10, DAY,
		.help = "The longest such pause."},
	{CHECK(max_attempts), .type = CONFIG_INTEGER, .default_value = "20", .low = 1, .high = 1000000,
		.help = "The requests about one id that may be sent without a decision; then it is parked "
			"and waits for an operator (outbox-relay lookback). An answer of pending is none of "
			"them."},
	{CHECK_MS(pending_every), "1m", 10, DAY,
		.help = "The pause after an answer of pending."},
	{CHECK_MS(pending_max), "24h", 10, 3650 * DAY,
		.help = "How long after its prepare an id may be pending; then it is parked."},
	{CHECK_MS(retry_after_max), "1h", 0, DAY,
		.help = "The longest Retry-After that is kept to."},
	{CHECK(breaker_failures), .type = CONFIG_INTEGER, .default_value = "10", .low = 1,
		.high = 1000000,
		.help = "So many failed requests to a host in a row stop further ones, of the same section "
			"and process."},
	{CHECK_MS(breaker_pause), "30s", 10, DAY,
		.help = "For how long; then one request finds out whether it works again."},

	{LOOKBACK(postgres), .type = CONFIG_SECTION, .refers = CONFIG_POSTGRES, .default_value = "main",
		.help = "The [postgres] section of the database that keeps it."},
	{LOOKBACK(kafka), .type = CONFIG_SECTION, .refers = CONFIG_KAFKA, .default_value = "main",
		.help = "The [kafka] section of the cluster with the look-back topic."},
	{LOOKBACK(topic), .type = CONFIG_TEXT, .default_value = "look_back_msg",
		.help = "The topic that prepares and decisions come by."},
	{LOOKBACK(group), .type = CONFIG_TEXT, .default_value = "",
		.help = "The consumer group that reads it. Empty: outbox-relay. and the section's name."},
	{LOOKBACK(types), .type = CONFIG_LIST, .default_value = "",
		.help = "Its business types, separated by commas. Empty: one, named as the section."},
	{LOOKBACK(topics), .type = CONFIG_LIST, .default_value = "*",
		.help = "The topics its messages may go to; orders.* stands for all that begin so."},
	{CONFIG_LOOKBACK, "default", CONFIG_CHOICE, offsetof(struct config_lookback, is_default), "no",
		.choices = answers,
		.help = "Of several sections on one topic one is the default: it dead-letters what no "
			"section owns, or cannot be read."},
	{LOOKBACK(dead_letter), .type = CONFIG_TEXT, .default_value = "look_back_dead_letter",
		.help = "The topic for what cannot be taken, with the reason in its headers."},
	{LOOKBACK(check), .type = CONFIG_SECTION, .refers = CONFIG_CHECK, .default_value = "",
		.help = "The [check] section that is asked about messages that name none. Empty: each "
			"prepare has to name its own."},
	{LOOKBACK_MS(check_after), "30s", 10, 365 * DAY,
		.help = "How long after its prepare the business is asked about an undecided message that "
			"does not say it itself."},
	{LOOKBACK_MS(expires_after), "3d", 10, 3650 * DAY,
		.help = "How long after its prepare an undecided message is parked, when it does not say "
			"it itself."},
	{LOOKBACK(readers), .type = CONFIG_INTEGER, .default_value = "1", .low = 1, .high = 64,
		.help = "How many members of the group read it in this process, each with a thread and a "
			"session of its own: more of them than one when one cannot keep up, and as many at "
			"most as the topic has partitions."},
	{LOOKBACK(batch), .type = CONFIG_INTEGER, .default_value = "2000", .low = 1, .high = 20000,
		.help = "The most records in one transaction."},
	{LOOKBACK(memory), .type = CONFIG_BYTES, .default_value = "16MiB", .low = MIB,
		.high = 256 * MIB,
		.help = "The most bytes of records in one transaction."},
	{LOOKBACK(in_flight), .type = CONFIG_INTEGER, .default_value = "256", .low = 1, .high = 5000,
		.help = "The most requests at once, to everybody, of this section in each process."},
	{LOOKBACK_MS(claim), "2m", SECOND, DAY,
		.help = "How long a relay that went silent keeps the ids that it asks about."},

	{DELIVER(kafka), .type = CONFIG_SECTION, .refers = CONFIG_KAFKA, .default_value = "main",
		.help = "The [kafka] section of the cluster with the topics."},
	{DELIVER(topics), .type = CONFIG_LIST, .default_value = "",
		.help = "The topics that are delivered, separated by commas. Empty: one, named as the section."},
	{DELIVER(group), .type = CONFIG_TEXT, .default_value = "",
		.help = "The consumer group that reads them. Empty: outbox-relay-deliver- and the section's "
			"name."},
	{DELIVER(url), .type = CONFIG_TEXT, .default_value = "",
		.help = "Where messages are posted to."},
	{DELIVER(form), .type = CONFIG_CHOICE, .default_value = "single", .choices = forms,
		.help = "One message in a request, or many as a JSON array of events, each of which gets "
			"an answer of its own."},
	{DELIVER(mode), .type = CONFIG_CHOICE, .default_value = "binary", .choices = modes,
		.help = "How a single message is written as a CloudEvent: its payload as the body and its "
			"attributes as headers, or all of it as one JSON object."},
	{DELIVER(batch), .type = CONFIG_INTEGER, .default_value = "32", .low = 1, .high = 1000,
		.help = "The most messages in one request (form = batch)."},
	{DELIVER(dedup), .type = CONFIG_TEXT, .default_value = "",
		.help = "The store that tells copies from first ones, a line as docs/reference/dedup.md has it. "
			"`ids=` counts the ids of one partition, and each assigned partition takes that "
			"memory. Empty: copies are delivered like any other."},
	{DELIVER(path), .type = CONFIG_TEXT, .default_value = "",
		.help = "The folder of the state of dedup and rules; it is made if its parent is there."},
	{DELIVER(id), .type = CONFIG_TEXT, .default_value = "header:outbox-id",
		.help = "What identifies a message: key, payload, header:NAME, json:$.order.id, or several "
			"with commas (docs/guide/rules.md)."},
	{DELIVER(without_id), .type = CONFIG_CHOICE, .default_value = "dead-letter",
		.choices = policies,
		.help = "What becomes of a message in which id finds nothing: it is "
			"dead-lettered, delivered as if it had an id of its own, or its "
			"partition is blocked."},
	{DELIVER(rules), .type = CONFIG_LINES, .default_value = "",
		.help = "How often messages of a key may come, in lines as docs/guide/rules.md has them, with a | "
			"between two."},
	{CONFIG_DELIVER, "rules_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the rules, one a line."},
	{DELIVER(concurrency), .type = CONFIG_INTEGER, .default_value = "256", .low = 1,
		.high = 10000,
		.help = "The most messages that are being delivered at once; those of a key go one after "
			"the other."},
	{DELIVER(connections), .type = CONFIG_INTEGER, .default_value = "32", .low = 1, .high = 1000,
		.help = "The most requests at once."},
	{DELIVER(memory), .type = CONFIG_BYTES, .default_value = "32MiB", .low = MIB,
		.high = 4096 * MIB,
		.help = "Memory for messages that are read and not yet finished."},
	{DELIVER_MS(retry_first), "1s", 10, DAY,
		.help = "The pause before a message that failed is tried again; each further pause is "
			"twice as long."},
	{DELIVER_MS(retry_max), "5m", 10, DAY,
		.help = "The longest such pause."},
	{DELIVER(attempts), .type = CONFIG_INTEGER, .default_value = "10", .low = 0, .high = 1000000,
		.help = "So often a message is tried; then it goes through the retry topics, and to the "
			"dead letters. 0: without end."},
	{DELIVER(retry_topics), .type = CONFIG_LIST, .default_value = "",
		.help = "Topics that a message goes through after its attempts, each once, with the time "
			"that it waits there, as in orders.retry.10s=10s; the order of its key is given up."},
	{DELIVER(dead_letter_topic), .type = CONFIG_TEXT, .default_value = "",
		.help = "The topic for what cannot be delivered, with the reason in its headers. Empty: "
			"none, and the partition of such a message stands still."},
	{DELIVER(start), .type = CONFIG_CHOICE, .default_value = "earliest", .choices = starts,
		.help = "Where the group begins in a partition of which it has committed nothing, or whose "
			"committed offset is not there any more; block: nowhere until its offset is set."},
	{DELIVER_MS(commit_every), "1s", 10, MINUTE,
		.help = "The time between two commits of what is finished."},
	{DELIVER_MS(drain), "10s", 0, HOUR,
		.help = "How long requests under way are waited for when partitions go, or the process "
			"ends."},
	{DELIVER_MS(timeout), "10s", 1, HOUR,
		.help = "How long a request may take."},
	{DELIVER_MS(connect_timeout), "3s", 1, HOUR,
		.help = "How much of it may pass before there is a connection."},
	{DELIVER(max_answer), .type = CONFIG_BYTES, .default_value = "64KiB", .low = 64,
		.high = 16 * MIB,
		.help = "The largest answer that is read. A batch whose answer cannot fit is refused."},
	{DELIVER(networks), .type = CONFIG_TEXT, .default_value = "",
		.help = "Addresses that may be connected to although they are not public, as in "
			"10.2.0.0/16, separated by commas."},
	{DELIVER(secret), .type = CONFIG_TEXT, .default_value = "",
		.help = "The key that signs requests (Standard Webhooks): whsec_ and 24 to 64 bytes in "
			"base64. Empty: they are not signed."},
	{CONFIG_DELIVER, "secret_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the secret, instead of secret."},
	{DELIVER(old_secret), .type = CONFIG_TEXT, .default_value = "",
		.help = "A second key, that signs as well while keys change."},
	{CONFIG_DELIVER, "old_secret_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the old_secret, instead of old_secret."},
	{DELIVER(tls_ca), .type = CONFIG_TEXT, .default_value = "",
		.help = "A file of certificates (PEM) that are trusted. Empty: the system's."},
	{DELIVER(tls_certificate), .type = CONFIG_TEXT, .default_value = "",
		.help = "A file (PEM) with our own certificate, for applications that ask for one."},
	{DELIVER(tls_key), .type = CONFIG_TEXT, .default_value = "",
		.help = "The file (PEM) of its key."},
	{DELIVER(rate), .type = CONFIG_INTEGER, .default_value = "0", .low = 0, .high = 1000000,
		.help = "The most requests a second; 0: as many as come."},
	{DELIVER_MS(retry_after_max), "1h", 0, DAY,
		.help = "The longest Retry-After that is kept to."},
	{DELIVER(breaker_failures), .type = CONFIG_INTEGER, .default_value = "10", .low = 1,
		.high = 1000000,
		.help = "So many failed requests in a row stop further ones."},
	{DELIVER_MS(breaker_pause), "30s", 10, DAY,
		.help = "For how long; then one request finds out whether it works again. No attempt is "
			"spent meanwhile."},
	{DELIVER(event_source), .type = CONFIG_TEXT, .default_value = "",
		.help = "The source of events whose records do not say it (ce_source). Empty: /topics/ and "
			"the topic."},
	{DELIVER(event_type), .type = CONFIG_TEXT, .default_value = "",
		.help = "The type of events whose records do not say it (ce_type). Empty: the topic."},

	{SENDER(tokens), .type = CONFIG_LIST, .default_value = "",
		.help = "Its bearer tokens; several while they change. A token has one sender."},
	{CONFIG_SENDER, "tokens_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the tokens."},
	{SENDER(sections), .type = CONFIG_LIST, .default_value = "",
		.help = "The [lookback] sections that it speaks for, separated by commas. Empty: any, and "
			"types is needed."},
	{SENDER(types), .type = CONFIG_LIST, .default_value = "",
		.help = "The business types that it speaks for, separated by commas; orders.* stands for "
			"all that begin so, and * for all. Empty: any of its sections."},

	{API(listen), .type = CONFIG_ADDRESS, .default_value = "",
		.help = "host:port, or a port on 127.0.0.1. Empty: no interface."},
	{API(remote), .type = CONFIG_CHOICE, .default_value = "no", .choices = answers,
		.help = "May listen be an address that other machines reach? Tokens and messages travel "
			"in clear text: better a proxy on this machine that speaks TLS."},
	{API(host), .type = CONFIG_LIST, .default_value = "",
		.help = "Names by which clients call the interface, for example relay.example. A request "
			"is refused if its Host field is none of these, the name or address of listen, "
			"or localhost: a page in a browser can make any other name mean this address."},
	{API(send_tokens), .type = CONFIG_LIST, .default_value = "",
		.help = "Bearer tokens that may prepare, commit and roll back ids of every business type. "
			"Where several applications send, each has a [sender] instead. "
			"A token has at least 16 characters."},
	{CONFIG_API, "send_tokens_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the send_tokens."},
	{API(read_tokens), .type = CONFIG_LIST, .default_value = "",
		.help = "Bearer tokens that may look."},
	{CONFIG_API, "read_tokens_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the read_tokens."},
	{API(operate_tokens), .type = CONFIG_LIST, .default_value = "",
		.help = "Bearer tokens of operators: they may look and decide."},
	{CONFIG_API, "operate_tokens_file", CONFIG_FILE, .default_value = "",
		.help = "A file that holds the operate_tokens."},
	{CONFIG_API, "arrival", CONFIG_DURATION, offsetof(struct config, api.arrival_ms), "60s", SECOND,
		HOUR,
		.help = "How long a request may take to arrive; then its connection is cut."},
	{API(max_body), .type = CONFIG_BYTES, .default_value = "8MiB", .low = 1024, .high = 256 * MIB,
		.help = "The largest request."},

	{CONFIG_ADMIN, "listen", CONFIG_ADDRESS, offsetof(struct config, admin_listen), "",
		.help = "host:port, or a port on 127.0.0.1. Empty: no endpoint."},
	{CONFIG_ADMIN, "remote", CONFIG_CHOICE, offsetof(struct config, admin_remote), "no",
		.choices = answers,
		.help = "May listen be an address that other machines reach? Everybody who reaches it may "
			"read the metrics and the state of every publisher, without a token."},
	{CONFIG_ADMIN, "host", CONFIG_LIST, offsetof(struct config, admin_host), "",
		.help = "Names by which probes and Prometheus call the endpoint, as in [api]."},

	{CONFIG_LOG, "level", CONFIG_CHOICE, offsetof(struct config, log_level), "info",
		.choices = levels, .reloadable = true,
		.help = "The least level that is written."},
	{CONFIG_LOG, "format", CONFIG_CHOICE, offsetof(struct config, log_format), "logfmt",
		.choices = formats, .reloadable = true,
		.help = "The form of a line."},
};
/* clang-format on */
const int config_row_count = sizeof config_rows / sizeof *config_rows;

static_assert(offsetof(struct postgres_settings, name) == 0, "config_rows_item_named reads it");
static_assert(offsetof(struct kafka_settings, name) == 0, "config_rows_item_named reads it");
static_assert(
    offsetof(struct config_publisher, settings.name) == 0, "config_rows_item_named reads it");
static_assert(offsetof(struct config_topic, name) == 0, "config_rows_item_named reads it");
static_assert(offsetof(struct config_check, name) == 0, "config_rows_item_named reads it");
static_assert(offsetof(struct config_lookback, name) == 0, "config_rows_item_named reads it");
static_assert(offsetof(struct config_deliver, name) == 0, "config_rows_item_named reads it");
static_assert(sizeof(enum retention) == sizeof(int), "a choice is stored as an int");

const struct config_row *config_rows_find(enum config_kind kind, const char *key)
{
	for (int i = 0; i < config_row_count; i++)
		if (config_rows[i].kind == kind && strcmp(config_rows[i].key, key) == 0)
			return &config_rows[i];
	return NULL;
}

int config_rows_items(const struct config *config, enum config_kind kind)
{
	const struct config_kind_row *row = &config_kinds[kind];
	int count = 1;

	if (row->size)
		memcpy(&count, (const char *)config + row->count, sizeof count);
	return count;
}

void *config_rows_item(const struct config *config, enum config_kind kind, int number)
{
	const struct config_kind_row *row = &config_kinds[kind];
	char *list;

	if (!row->size)
		return (void *)config;
	memcpy(&list, (const char *)config + row->list, sizeof list);
	return list + (size_t)number * row->size;
}

void *config_rows_item_named(const struct config *config, enum config_kind kind, const char *name)
{
	for (int i = 0; i < config_rows_items(config, kind); i++) {
		void *item = config_rows_item(config, kind, i);
		if (!config_kinds[kind].size || strcmp(*(char **)item, name) == 0)
			return item;
	}
	return NULL;
}
