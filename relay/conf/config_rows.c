/*
 * Every section and key of the configuration: type, range, default and help. The parser, `config
 * --print-sample` and the reference page use these rows. config_topics.c, config_sender.c and
 * others have the checks across keys.
 */
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
		"The PostgreSQL database that holds the outbox, and the partitions of its tables."},
	[CONFIG_KAFKA] = {"kafka", true, false, LIST(kafka), sizeof(struct kafka_settings),
		"A Kafka cluster. Each key is a librdkafka property, for example "
		"bootstrap.servers or security.protocol. With the suffix _file, as in "
		"sasl.password_file, the key names a file that holds the value."},
	[CONFIG_PUBLISHER] = {"publisher", false, false, offsetof(struct config, publishers),
		offsetof(struct config, publisher_count), sizeof(struct config_publisher),
		"A publisher: it reads the message table, publishes its rows to Kafka and keeps "
		"its own progress. Without such a section there is one publisher, \"main\".",
		.origin = offsetof(struct config_publisher, origin)},
	[CONFIG_TOPIC] = {"topic", false, true, offsetof(struct config, topics),
		offsetof(struct config, topic_count), sizeof(struct config_topic),
		"Settings of one topic, which the section names as Kafka spells it. Topics "
		"without a section have the defaults."},
	[CONFIG_CHECK] = {"check", false, true, offsetof(struct config, checks),
		offsetof(struct config, check_count), sizeof(struct config_check),
		"A service of the business. The relay calls it about undecided messages of the "
		"look-back, and it answers commit, rollback, pending or unknown.",
		.origin = offsetof(struct config_check, origin)},
	[CONFIG_LOOKBACK] = {"lookback", false, true, offsetof(struct config, lookbacks),
		offsetof(struct config, lookback_count), sizeof(struct config_lookback),
		"The look-back of some business types. The relay reads prepares, commits and "
		"rollbacks from a topic, writes committed messages to the message table, and "
		"calls the business about undecided messages.",
		.origin = offsetof(struct config_lookback, origin)},
	[CONFIG_DELIVER] = {"deliver", false, true, offsetof(struct config, delivers),
		offsetof(struct config, deliver_count), sizeof(struct config_deliver),
		"An application that receives the messages of topics as HTTP POST requests "
		"(docs/reference/sidecar.md). The relay drops duplicates, applies rules, retries "
		"failed messages and sends them to a dead-letter topic.",
		.origin = offsetof(struct config_deliver, origin)},
	[CONFIG_TOKEN] = {"token", false, true, offsetof(struct config, tokens),
		offsetof(struct config, token_count), sizeof(struct config_token),
		"A caller of the HTTP interface: an application that sends, an operator, a "
		"program that reads. The log names the caller of an order. With both "
		"sections and types set, both must match.",
		.reloadable = true},
	[CONFIG_API] = {"api", false, false, 0, 0, 0,
		"The HTTP interface: for applications that use the look-back without a Kafka "
		"client, and for operators."},
	[CONFIG_ADMIN] = {"admin", false, false, 0, 0, 0,
		"The HTTP endpoint for health and metrics."},
	[CONFIG_LOG] = {"log", false, false, 0, 0, 0,
		"The log on standard error."},
};

static const char *const doorbells[] = {"auto", "on", "off", NULL};
static const char *const retentions[] = {"drop", "detach", "archive", NULL};
static const char *const timestamps[] = {"created", "publish", NULL};
static const char *const safeties[] = {"warn", "strict", NULL};
static const char *const deliveries[] = {"at-least-once", "exactly-once", NULL};
static const char *const resumes[] = {"tail", "none", NULL};
static const char *const paces[] = {"latency", "balanced", "economy", NULL};
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
#define CREDENTIAL(section, member) offsetof(struct section, credentials.member)
/* Keys that each section with calls of a business has. */
#define CREDENTIAL_ROWS(kind, section) \
	{kind, "headers", CONFIG_LINES, CREDENTIAL(section, headers), "", \
		.help = "Headers of each request, for example Authorization: Bearer abc, separated " \
			"by |. Those that the relay itself sets are refused."}, \
	{kind, "headers_file", CONFIG_FILE, CREDENTIAL(section, headers_file), "", \
		.help = "File that holds the headers, one per line. A changed file is used within a " \
			"second."}, \
	{kind, "token_url", CONFIG_TEXT, CREDENTIAL(section, token_url), "", \
		.help = "Token endpoint of an authorization server. The relay gets access tokens " \
			"there by OAuth 2 client credentials, and sends them in the header " \
			"Authorization: Bearer. Empty: no tokens."}, \
	{kind, "client_id", CONFIG_TEXT, CREDENTIAL(section, client_id), "", \
		.help = "Name of the relay at the authorization server."}, \
	{kind, "client_secret", CONFIG_TEXT, CREDENTIAL(section, client_secret), "", \
		.help = "Password of client_id."}, \
	{kind, "client_secret_file", CONFIG_FILE, CREDENTIAL(section, client_secret_file), "", \
		.help = "File that holds the client_secret. It is read for each token."}, \
	{kind, "scope", CONFIG_TEXT, CREDENTIAL(section, scope), "", \
		.help = "Scopes of the tokens, separated by spaces. Empty: those that the " \
			"authorization server gives by default."}, \
	{kind, "audience", CONFIG_TEXT, CREDENTIAL(section, audience), "", \
		.help = "Audience of the tokens, for authorization servers that want one."}, \
	{kind, "token_ca", CONFIG_TEXT, CREDENTIAL(section, token_ca), "", \
		.help = "File with the CA certificates that token_url is trusted by (PEM). Empty: " \
			"those of the system."}
#define TOKEN(member) CONFIG_TOKEN, #member, .offset = offsetof(struct config_token, member)
#define API(member) CONFIG_API, #member, .offset = offsetof(struct config, api.member)

const struct config_row config_rows[] = {
	{POSTGRES(dsn), .type = CONFIG_TEXT, .default_value = "",
		.help = "Connection string or URI for libpq, for example "
			"postgresql://relay@db.example/shop. Empty: DATABASE_URL, or else the "
			"PG* variables."},
	{CONFIG_POSTGRES, "dsn_file", CONFIG_FILE, .default_value = "",
		.help = "File that holds the dsn; use it instead of dsn."},
	{POSTGRES(password_command), .type = CONFIG_TEXT, .default_value = "",
		.help = "Command whose first line of output is the password. /bin/sh -c runs it "
			"before each connection by the dsn of this section, so that a new password "
			"or token needs no restart (docs/guide/secure.md). It replaces the password "
			"of the dsn. Put no secret into the command "
			"itself: every user of the machine can see it in the list of processes."},
	{POSTGRES_MS(password_timeout), "5s", 100, MINUTE,
		.help = "Maximum run time of password_command. After it the command is killed, and "
			"the connection is tried again."},
	{POSTGRES(schema), .type = CONFIG_SCHEMA, .default_value = "outbox",
		.help = "Schema of the outbox in the database."},
	{POSTGRES(doorbell), .type = CONFIG_CHOICE, .default_value = "auto", .choices = doorbells,
		.reloadable = true,
		.help = "Whether writers wake the relay (docs/explain/doorbell.md). auto: they do, "
			"unless the server allows PREPARE TRANSACTION (max_prepared_transactions "
			"above 0) or a pooler is between. on: also if it allows PREPARE TRANSACTION; no "
			"writer of messages may use it. off: the relay only polls (poll_idle)."},
	{POSTGRES_MS(partition_every), "1d", SECOND, 365 * DAY,
		.help = "Time range of each partition of the message table."},
	{POSTGRES(partitions_ahead), .type = CONFIG_INTEGER, .default_value = "1",
		.low = 1, .high = 100, .reloadable = true,
		.help = "Number of partitions that are created ahead of the current one."},
	{POSTGRES_MS(retain), "3d", 0, 3650 * DAY, .reloadable = true,
		.help = "Minimum age of published rows before their partition is dropped, "
		    "detached or archived (retention)."},
	{POSTGRES(retention), .type = CONFIG_CHOICE, .default_value = "drop", .choices = retentions,
		.reloadable = true,
		.help = "Treatment of a partition whose rows are older than retain. drop: it is "
			"dropped. detach: it is detached and stays as a table. archive: it is detached, "
			"written to a compressed file in archive_path, checked, and then dropped."},
	{POSTGRES(archive_path), .type = CONFIG_TEXT, .default_value = "",
		.help = "Folder for the files of archived partitions. Required with retention = "
			"archive."},
	{POSTGRES_MS(upkeep_interval), "60s", 100, DAY, .reloadable = true,
		.help = "Interval of the partition upkeep, which creates, drops and detaches "
			"partitions. While the doorbell sleeps it is five times as long, but at "
			"most a quarter of partition_every."},

	{PUBLISHER(postgres), .type = CONFIG_SECTION, .refers = CONFIG_POSTGRES, .default_value = "main",
		.help = "The [postgres] section that the publisher reads from."},
	{PUBLISHER(kafka), .type = CONFIG_SECTION, .refers = CONFIG_KAFKA, .default_value = "main",
		.help = "The [kafka] section that the publisher publishes to."},
	{CONFIG_PUBLISHER, "shards", CONFIG_INTEGER, offsetof(struct config_publisher, shards), "0",
		.low = 0, .high = 64,
		.help = "Number of shards of the publisher. 0 uses the number that the database "
			"holds; any other number must be equal to it."},
	{PUBLISHER(max_in_flight), .type = CONFIG_INTEGER, .default_value = "20000",
		.low = 1, .high = 1000000,
		.help = "Maximum number of records that are produced and not yet covered by the "
			"stored progress. After a crash up to as many may be published again. "
			"With exactly-once: maximum number of records per transaction (default "
			"40000); as many records of the next transaction may go out before the "
			"progress of the previous one is stored."},
	{PUBLISHER(memory), .type = CONFIG_BYTES, .default_value = "24MiB",
		.low = MIB, .high = 4096 * MIB,
		.help = "Memory for rows that were read and are not yet acknowledged, including "
			"the producer's queue. At most a quarter of it holds the ids of records "
			"that a takeover found in Kafka."},
	{PUBLISHER_MS(lease), "5s", 100, HOUR,
		.help = "Lifetime of a shard's lease: if the owner does not renew it for this "
		    "time, another process takes the shard over."},
	{PUBLISHER(pace), .type = CONFIG_CHOICE, .default_value = "balanced", .choices = paces,
		.help = "Choice between latency and CPU time: it sets the defaults of poll_busy (0, "
			"3ms, 35ms), poll_idle (20ms, 70ms, 100ms) and the Kafka property "
			"linger.ms (0, 0, 2). latency: the relay looks for rows all the time. "
			"economy: messages wait up to 40 ms and travel together, which costs the "
			"relay, the database and the broker least."},
	{PUBLISHER_MS(poll_busy), "3ms", 0, 10 * SECOND, .reloadable = true, .by_pace = true,
		.help = "Pause between two polls while rows arrive. 0: half a millisecond."},
	{PUBLISHER_MS(poll_idle), "70ms", 1, MINUTE, .reloadable = true, .by_pace = true,
		.help = "Longest pause between two polls while no rows arrive."},
	{PUBLISHER_MS(ack_interval), "200ms", 0, MINUTE, .reloadable = true,
		.help = "Maximum time between an acknowledgement and the storage of the progress."},
	{PUBLISHER_MS(stall_after), "60s", SECOND, DAY,
		.help = "A producer that makes no progress for this time is replaced by a new "
			"one. If a partition accepts no record for this time while others do, its "
			"records are parked."},
	{PUBLISHER_MS(topic_idle), "10m", SECOND, DAY,
		.help = "A topic that receives no messages for this time is closed: the Kafka "
			"client forgets it, and a takeover does not read its partitions. A topic "
			"that does not exist in the cluster for this time is removed from the "
			"log."},
	{PUBLISHER(delivery), .type = CONFIG_CHOICE, .default_value = "at-least-once",
		.choices = deliveries,
		.help = "at-least-once: a failure may repeat records. exactly-once: records are "
			"sent in Kafka transactions, and consumers with "
			"isolation.level=read_committed see each of them once; it needs resume = "
			"tail."},
	{PUBLISHER(resume), .type = CONFIG_CHOICE, .default_value = "tail", .choices = resumes,
		.help = "Preparation of a publisher for its first record after a takeover, or "
			"after it replaced its producer. tail: it reads each partition from the "
			"stored offset to the end, and does not publish again the records that "
			"it finds. none: it reads nothing, and records that were in flight are "
			"published twice."},
	{PUBLISHER_MS(retry_first), "1s", 10, HOUR,
		.help = "Pause before the first retry of a record that Kafka refused "
			"permanently. Each further pause is twice as long. A random part of up "
			"to a half is subtracted from each pause."},
	{PUBLISHER_MS(retry_max), "5m", 10, DAY,
		.help = "Longest pause between two attempts of a refused record."},
	{PUBLISHER(max_attempts), .type = CONFIG_INTEGER, .default_value = "10",
		.low = 1, .high = 1000000,
		.help = "Maximum number of attempts of a record that Kafka refuses permanently. "
			"After that the record is dead and waits for an operator (outbox-relay "
			"parked)."},
	{PUBLISHER(timestamp), .type = CONFIG_CHOICE, .default_value = "created", .choices = timestamps,
		.help = "Timestamp of a record. created: the time at which its row was created. "
		    "publish: the time at which it is published."},
	{PUBLISHER(safety), .type = CONFIG_CHOICE, .default_value = "warn", .choices = safeties,
		.help = "Reaction to a cluster that can lose acknowledged data. warn: the relay "
		    "logs a warning. strict: it refuses to run."},
	{CONFIG_PUBLISHER, "topics", CONFIG_LIST, offsetof(struct config_publisher, topics), "*",
		.help = "Topics that messages may be published to. orders.* stands for all "
			"topics that begin with \"orders.\". A message for another topic is "
			"parked as dead. Never allowed are the look-back, dead-letter and retry "
			"topics of this configuration, and topics that begin with __."},

	{CONFIG_TOPIC, "on_refusal", CONFIG_CHOICE, offsetof(struct config_topic, on_refusal), "block",
		.choices = refusals,
		.help = "Reaction to a record of this topic that Kafka refuses permanently. "
			"block: the record is parked, and later records of its key wait behind "
			"it. pass: the record is parked, and later records of its key are "
			"published, which gives up their order. stop: the publisher stops."},
	{CONFIG_TOPIC, "headers", CONFIG_CHOICE, offsetof(struct config_topic, headers), "full",
		.choices = headers,
		.help = "Headers that the relay adds to records of this topic. full: outbox-id "
			"and outbox-position. none: neither of them, which saves about 125 bytes "
			"per record; publishers of the topic then need resume = none and "
			"delivery = at-least-once, and verify does not judge its rows."},

	{CHECK(transport), .type = CONFIG_CHOICE, .default_value = "http", .choices = transports,
		.help = "How the relay calls the business. http: a POST with JSON. grpc: a unary "
			"call of lookback.v1.Checker/Check. sql: a function in the database of "
			"the business."},
	{CHECK(url), .type = CONFIG_TEXT, .default_value = "",
		.help = "URL that the relay calls (http, grpc), for example "
		    "https://shop.example/lookback. Empty: the relay calls only the URLs that "
		    "messages name. gRPC services may have several addresses: grpc://shop (from "
		    "the DNS records SRV of _grpc._tcp.shop), grpc://shop:50051 (all addresses of "
		    "the name), grpc://10.0.0.1:50051,10.0.0.2:50051; grpcs:// is the same with "
		    "TLS. These forms set transport = grpc."},
	{CHECK(name_servers), .type = CONFIG_TEXT, .default_value = "",
		.help = "Name servers that resolve url = grpc://NAME, for example 10.0.0.2 or "
			"127.0.0.1:5353, separated by commas. Empty: those of the system "
			"(/etc/resolv.conf)."},
	{CHECK(dsn), .type = CONFIG_TEXT, .default_value = "",
		.help = "Connection string or URI of the business's database for libpq (sql)."},
	{CONFIG_CHECK, "dsn_file", CONFIG_FILE, .default_value = "",
		.help = "File that holds the dsn; use it instead of dsn."},
	{CHECK(function), .type = CONFIG_TEXT, .default_value = "lookback_check",
		.help = "Function that the relay calls (sql). It takes (biz_type text, biz_ids "
			"text[]) and returns rows of (biz_id text, decision text)."},
	{CHECK(read_only), .type = CONFIG_CHOICE, .default_value = "yes", .choices = answers,
		.help = "Whether the relay calls the function in a read-only transaction (sql). "
			"A function that writes a barrier against late commits needs no."},
	{CHECK(types), .type = CONFIG_LIST, .default_value = "",
		.help = "Business types whose messages may use this service. Empty: all types."},
	{CHECK(allow), .type = CONFIG_TEXT, .default_value = "",
		.help = "Allowed destinations of the check_url of messages: scheme, host, port "
			"and the beginning of the path, for example "
			"https://*.example.com/lookback. Separate them by commas. Empty: "
			"messages may not name a URL."},
	{CHECK(networks), .type = CONFIG_TEXT, .default_value = "",
		.help = "Non-public addresses that the relay may connect to, for example "
			"10.2.0.0/16, separated by commas."},
	{CHECK(secret), .type = CONFIG_TEXT, .default_value = "",
		.help = "Key that signs requests (Standard Webhooks): whsec_ followed by 24 to "
			"64 bytes in base64. Empty: requests are not signed."},
	{CONFIG_CHECK, "secret_file", CONFIG_FILE, .default_value = "",
		.help = "File that holds the secret; use it instead of secret."},
	{CHECK(old_secret), .type = CONFIG_TEXT, .default_value = "",
		.help = "Second key: requests carry the signatures of both keys, so that "
		    "receivers can change keys."},
	{CONFIG_CHECK, "old_secret_file", CONFIG_FILE, .default_value = "",
		.help = "File that holds the old_secret; use it instead of old_secret."},
	CREDENTIAL_ROWS(CONFIG_CHECK, config_check),
	{CHECK(tls_ca), .type = CONFIG_TEXT, .default_value = "",
		.help = "File with the trusted CA certificates (PEM). Empty: those of the system."},
	{CHECK(tls_certificate), .type = CONFIG_TEXT, .default_value = "",
		.help = "File with the client certificate of the relay (PEM), for services that "
		    "require one."},
	{CHECK(tls_key), .type = CONFIG_TEXT, .default_value = "",
		.help = "File with the private key of tls_certificate (PEM)."},
	{CHECK_MS(timeout), "10s", 1, HOUR,
		.help = "Maximum duration of a request."},
	{CHECK_MS(connect_timeout), "3s", 1, HOUR,
		.help = "Maximum time to connect, as part of timeout."},
	{CHECK(max_answer), .type = CONFIG_BYTES, .default_value = "64KiB", .low = 64, .high = 16 * MIB,
		.help = "Maximum size of an answer. A batch whose answer cannot fit into it is a "
		    "configuration error."},
	{CHECK(batch), .type = CONFIG_INTEGER, .default_value = "1", .low = 1, .high = 1000,
		.help = "Maximum number of ids per request. Above 1 the body is {\"ids\": [...]}."},
	{CHECK(host_in_flight), .type = CONFIG_INTEGER, .default_value = "64", .low = 1, .high = 1000,
		.help = "Maximum number of concurrent requests to one host and port. Each "
			"[lookback] section in each process has its own limits host_in_flight, "
			"type_in_flight and rate, and its own circuit breakers: two sections in "
			"three relays send up to six times as many requests."},
	{CHECK(type_in_flight), .type = CONFIG_INTEGER, .default_value = "64", .low = 1, .high = 1000,
		.help = "Maximum number of concurrent requests about one business type, in each "
		    "[lookback] section of each process."},
	{CHECK(rate), .type = CONFIG_INTEGER, .default_value = "1000", .low = 0, .high = 1000000,
		.help = "Maximum number of requests per second, in each [lookback] section of "
			"each process. 0: no limit."},
	{CHECK_MS(retry_first), "5s", 10, DAY,
		.help = "Pause before the relay calls the business again after an answer without "
			"a decision. Each further pause is twice as long, varied at random by up "
			"to a fifth."},
	{CHECK_MS(retry_max), "10m", 10, DAY,
		.help = "Longest pause between two attempts."},
	{CHECK(max_attempts), .type = CONFIG_INTEGER, .default_value = "20", .low = 1, .high = 1000000,
		.help = "Maximum number of requests about one id without a decision. After that "
			"the id is parked and waits for an operator (outbox-relay lookback). "
			"Requests that are answered with pending do not count."},
	{CHECK_MS(pending_every), "1m", 10, DAY,
		.help = "Pause after the answer pending."},
	{CHECK_MS(pending_max), "24h", 10, 3650 * DAY,
		.help = "Maximum time after its prepare during which an id may be pending. After "
		    "that the id is parked."},
	{CHECK_MS(retry_after_max), "1h", 0, DAY,
		.help = "Longest Retry-After of an answer that the relay respects; a longer one "
		    "counts as this time. 0: Retry-After is ignored."},
	{CHECK(breaker_failures), .type = CONFIG_INTEGER, .default_value = "10", .low = 1,
		.high = 1000000,
		.help = "Number of consecutive failed requests to a host that open its circuit "
			"breaker: the section of this process sends no further requests to the "
			"host."},
	{CHECK_MS(breaker_pause), "30s", 10, DAY,
		.help = "Time for which the circuit breaker stays open. Then one request tests "
		    "whether the service works again."},

	{LOOKBACK(postgres), .type = CONFIG_SECTION, .refers = CONFIG_POSTGRES, .default_value = "main",
		.help = "The [postgres] section of the database that stores the look-back."},
	{LOOKBACK(kafka), .type = CONFIG_SECTION, .refers = CONFIG_KAFKA, .default_value = "main",
		.help = "The [kafka] section of the cluster with the look-back topic."},
	{LOOKBACK(topic), .type = CONFIG_TEXT, .default_value = "look_back_msg",
		.help = "Topic that carries prepares and decisions."},
	{LOOKBACK(group), .type = CONFIG_TEXT, .default_value = "",
		.help = "Consumer group that reads the topic. Empty: \"outbox-relay.\" followed "
		    "by the section's name."},
	{LOOKBACK(types), .type = CONFIG_LIST, .default_value = "",
		.help = "Business types of the section, separated by commas. Empty: one type "
		    "with the section's name."},
	{LOOKBACK(topics), .type = CONFIG_LIST, .default_value = "*",
		.help = "Topics that messages may be published to. orders.* stands for all "
		    "topics that begin with \"orders.\"."},
	{CONFIG_LOOKBACK, "default", CONFIG_CHOICE, offsetof(struct config_lookback, is_default), "no",
		.choices = answers,
		.help = "If several sections read one topic, one of them must be the default. It "
			"sends records that belong to no section, or cannot be read, to the "
			"dead-letter topic."},
	{LOOKBACK(dead_letter), .type = CONFIG_TEXT, .default_value = "look_back_dead_letter",
		.help = "Topic for records that cannot be accepted, with the reason in their "
		    "headers."},
	{LOOKBACK(check), .type = CONFIG_SECTION, .refers = CONFIG_CHECK, .default_value = "",
		.help = "The [check] section of messages that name none. Empty: each prepare "
			"must name its own."},
	{LOOKBACK_MS(check_after), "30s", 10, 365 * DAY,
		.help = "Time after the prepare at which the relay first calls the business "
			"about an undecided message, if the message does not set its own."},
	{LOOKBACK_MS(expires_after), "3d", 10, 3650 * DAY,
		.help = "Time after the prepare at which an undecided message is parked, if the "
			"message does not set its own."},
	{LOOKBACK(readers), .type = CONFIG_INTEGER, .default_value = "1", .low = 1, .high = 64,
		.help = "Number of group members in this process that read the topic, each with "
			"its own thread and database session. Raise it if one cannot keep up; "
			"more readers than partitions of the topic are useless."},
	{LOOKBACK(batch), .type = CONFIG_INTEGER, .default_value = "2000", .low = 1, .high = 20000,
		.help = "Maximum number of records per transaction."},
	{LOOKBACK(memory), .type = CONFIG_BYTES, .default_value = "16MiB", .low = MIB,
		.high = 256 * MIB,
		.help = "Maximum size of the records of one transaction."},
	{LOOKBACK(in_flight), .type = CONFIG_INTEGER, .default_value = "256", .low = 1, .high = 5000,
		.help = "Maximum number of concurrent requests to all services, of this section "
		    "in each process."},
	{LOOKBACK_MS(claim), "2m", SECOND, DAY,
		.help = "Time for which a relay holds the ids that it calls the business about. "
		    "If the relay dies, another one takes the ids after this time."},

	{DELIVER(kafka), .type = CONFIG_SECTION, .refers = CONFIG_KAFKA, .default_value = "main",
		.help = "The [kafka] section of the cluster with the topics."},
	{DELIVER(topics), .type = CONFIG_LIST, .default_value = "",
		.help = "Topics to deliver, separated by commas. Empty: one topic with the "
		    "section's name."},
	{DELIVER(group), .type = CONFIG_TEXT, .default_value = "",
		.help = "Consumer group that reads the topics. Empty: \"outbox-relay-deliver-\" "
			"followed by the section's name."},
	{DELIVER(url), .type = CONFIG_TEXT, .default_value = "",
		.help = "URL to which messages are posted, for example "
		    "http://127.0.0.1:8080/messages."},
	{DELIVER(form), .type = CONFIG_CHOICE, .default_value = "single", .choices = forms,
		.help = "single: each request carries one message. batch: each request carries a "
			"JSON array of events, and the application answers for each event."},
	{DELIVER(mode), .type = CONFIG_CHOICE, .default_value = "binary", .choices = modes,
		.help = "Format of the CloudEvent of a single message. binary: the body is the "
			"payload, and the headers hold the attributes. structured: the body is "
			"one JSON object that holds both."},
	{DELIVER(batch), .type = CONFIG_INTEGER, .default_value = "32", .low = 1, .high = 1000,
		.help = "Maximum number of messages per request (form = batch)."},
	{DELIVER(dedup), .type = CONFIG_TEXT, .default_value = "",
		.help = "Dedup store that recognizes duplicates, a line as in "
			"docs/reference/dedup.md. `ids=` is the number of ids of one partition, "
			"and each assigned partition uses that memory. Empty: duplicates are "
			"delivered."},
	{DELIVER(claims), .type = CONFIG_TEXT, .default_value = "",
		.help = "Server that keeps claims on ids, a line such as `redis "
			"url=redis://127.0.0.1 name=billing lease=30s` or `postgres dsn=... "
			"name=billing` (docs/explain/dedup.md). While the application handles a "
			"message, no other process with the same line delivers one with its id. "
			"Empty: ids are not claimed."},
	{DELIVER(report), .type = CONFIG_TEXT, .default_value = "",
		.help = "Database that the messages come from, a line such as `postgres dsn=... "
			"schema=outbox`. The relay reports each handled message there before it "
			"commits the offset, so that a unique key with `while_pending => 'done'` "
			"may be used again (docs/guide/unique.md). Set it in one section of a "
			"topic. Empty: nothing is reported."},
	{CONFIG_DELIVER, "report_file", CONFIG_FILE, .default_value = "",
		.help = "File that holds the report line, for a dsn with a password."},
	{DELIVER(path), .type = CONFIG_TEXT, .default_value = "",
		.help = "Folder for the state of dedup and rules. The relay creates it if its "
		    "parent exists."},
	{DELIVER(id), .type = CONFIG_TEXT, .default_value = "header:outbox-id",
		.help = "Id of a message: key, payload, header:NAME, json:$.order.id, or several "
			"of these separated by commas (docs/guide/rules.md)."},
	{DELIVER(without_id), .type = CONFIG_CHOICE, .default_value = "dead-letter",
		.choices = policies,
		.help = "Treatment of a message without an id. dead-letter: it is sent to the "
			"dead-letter topic. process: it is delivered as if its id were unique. "
			"fail: its partition is blocked."},
	{DELIVER(rules), .type = CONFIG_LINES, .default_value = "", .reloadable = true,
		.help = "Rate limits of messages, lines as in docs/guide/rules.md, separated by "
			"|, or one JSON object."},
	{DELIVER(rules_file), .type = CONFIG_FILE, .default_value = "", .reloadable = true,
		.help = "File that holds the rules: one per line, or one JSON object. A reload "
			"reads it again."},
	{DELIVER(rules_store), .type = CONFIG_TEXT, .default_value = "",
		.help = "Server that holds the records of the rules, so that a limit holds for "
			"all partitions and processes, for example \"redis "
			"url=redis://127.0.0.1 name=push\" (docs/guide/rules.md). Empty: the "
			"records are in `path`, and a limit holds for each partition."},
	{DELIVER(user), .type = CONFIG_TEXT, .default_value = "",
		.help = "User of a message, for rules in JSON and for a Redis Cluster, for example "
			"header:user."},
	{DELIVER(content), .type = CONFIG_TEXT, .default_value = "payload",
		.help = "Content of a message, for rules in JSON."},
	{DELIVER(channel), .type = CONFIG_TEXT, .default_value = "topic",
		.help = "Channel of a message, for rules in JSON."},
	{DELIVER(zone), .type = CONFIG_TEXT, .default_value = "UTC",
		.help = "Time zone whose calendar day counts, for rules in JSON."},
	{DELIVER(concurrency), .type = CONFIG_INTEGER, .default_value = "256", .low = 1,
		.high = 10000,
		.help = "Maximum number of messages that are delivered concurrently. Messages "
			"with the same key are delivered one after the other."},
	{DELIVER(connections), .type = CONFIG_INTEGER, .default_value = "32", .low = 1, .high = 1000,
		.help = "Maximum number of concurrent requests."},
	{DELIVER(memory), .type = CONFIG_BYTES, .default_value = "32MiB", .low = MIB,
		.high = 4096 * MIB,
		.help = "Memory for messages that were read and are not yet finished."},
	{DELIVER_MS(retry_first), "1s", 10, DAY,
		.help = "Pause before the first retry of a failed message. Each further pause is "
			"twice as long."},
	{DELIVER_MS(retry_max), "5m", 10, DAY,
		.help = "Longest pause between two attempts."},
	{DELIVER(attempts), .type = CONFIG_INTEGER, .default_value = "10", .low = 0, .high = 1000000,
		.help = "Maximum number of attempts of a message. After that it goes through the "
			"retry topics, and then to the dead-letter topic. 0: no limit."},
	{DELIVER(retry_topics), .type = CONFIG_LIST, .default_value = "",
		.help = "Topics that a failed message goes through after its attempts, each "
			"once, with the waiting time, for example orders.retry.10s=10s. Messages "
			"of its key can overtake it."},
	{DELIVER(dead_letter_topic), .type = CONFIG_TEXT, .default_value = "",
		.help = "Topic for messages that cannot be delivered, with the reason in their "
			"headers. Empty: no topic, and such a message blocks its partition."},
	{DELIVER(start), .type = CONFIG_CHOICE, .default_value = "earliest", .choices = starts,
		.help = "Where the group begins in a partition without a committed offset, or "
			"whose committed offset no longer exists. block: the partition is "
			"blocked until its offset is set."},
	{DELIVER_MS(commit_every), "1s", 10, MINUTE,
		.help = "Interval of the offset commits of finished messages."},
	{DELIVER_MS(drain), "10s", 0, HOUR,
		.help = "Maximum time to wait for requests in flight when partitions are revoked "
			"or the process stops."},
	{DELIVER_MS(timeout), "10s", 1, HOUR,
		.help = "Maximum duration of a request."},
	{DELIVER_MS(connect_timeout), "3s", 1, HOUR,
		.help = "Maximum time to connect, as part of timeout."},
	{DELIVER(max_answer), .type = CONFIG_BYTES, .default_value = "64KiB", .low = 64,
		.high = 16 * MIB,
		.help = "Maximum size of an answer. A batch whose answer cannot fit into it is a "
		    "configuration error."},
	{DELIVER(networks), .type = CONFIG_TEXT, .default_value = "",
		.help = "Non-public addresses that the relay may connect to, for example "
			"10.2.0.0/16, separated by commas."},
	{DELIVER(secret), .type = CONFIG_TEXT, .default_value = "",
		.help = "Key that signs requests (Standard Webhooks): whsec_ followed by 24 to "
			"64 bytes in base64. Empty: requests are not signed."},
	{CONFIG_DELIVER, "secret_file", CONFIG_FILE, .default_value = "",
		.help = "File that holds the secret; use it instead of secret."},
	{DELIVER(old_secret), .type = CONFIG_TEXT, .default_value = "",
		.help = "Second key: requests carry the signatures of both keys, so that "
		    "receivers can change keys."},
	{CONFIG_DELIVER, "old_secret_file", CONFIG_FILE, .default_value = "",
		.help = "File that holds the old_secret; use it instead of old_secret."},
	CREDENTIAL_ROWS(CONFIG_DELIVER, config_deliver),
	{DELIVER(tls_ca), .type = CONFIG_TEXT, .default_value = "",
		.help = "File with the trusted CA certificates (PEM). Empty: those of the system."},
	{DELIVER(tls_certificate), .type = CONFIG_TEXT, .default_value = "",
		.help = "File with the client certificate of the relay (PEM), for applications "
		    "that require one."},
	{DELIVER(tls_key), .type = CONFIG_TEXT, .default_value = "",
		.help = "File with the private key of tls_certificate (PEM)."},
	{DELIVER(rate), .type = CONFIG_INTEGER, .default_value = "0", .low = 0, .high = 1000000,
		.help = "Maximum number of requests per second. 0: no limit."},
	{DELIVER_MS(retry_after_max), "1h", 0, DAY,
		.help = "Longest Retry-After of an answer that the relay respects; a longer one "
		    "counts as this time. 0: Retry-After is ignored."},
	{DELIVER(breaker_failures), .type = CONFIG_INTEGER, .default_value = "10", .low = 1,
		.high = 1000000,
		.help = "Number of consecutive failed requests that open the circuit breaker: no "
		    "further requests are sent."},
	{DELIVER_MS(breaker_pause), "30s", 10, DAY,
		.help = "Time for which the circuit breaker stays open. Then one request tests "
			"whether the application works again. Meanwhile no attempts of messages "
			"are used up."},
	{DELIVER(event_source), .type = CONFIG_TEXT, .default_value = "",
		.help = "CloudEvents source of records without the header ce_source. Empty: "
			"/topics/ followed by the topic."},
	{DELIVER(event_type), .type = CONFIG_TEXT, .default_value = "",
		.help = "CloudEvents type of records without the header ce_type. Empty: the topic."},

	{TOKEN(tokens), .type = CONFIG_LIST, .default_value = "", .reloadable = true,
		.help = "Bearer tokens of the caller, separated by commas; several of them while "
			"tokens change. A token has at least 16 characters, and belongs to one "
			"section."},
	{CONFIG_TOKEN, "tokens_file", CONFIG_FILE, .default_value = "", .reloadable = true,
		.help = "File that holds the tokens. A reload reads it again."},
	{TOKEN(roles), .type = CONFIG_LIST, .default_value = "", .reloadable = true,
		.help = "Roles of the caller, separated by commas: read, payload, send, operate, "
			"decide. No role includes another."},
	{TOKEN(publishers), .type = CONFIG_LIST, .default_value = "", .reloadable = true,
		.help = "Publishers that the caller may see and operate, separated by commas. "
			"Empty: all."},
	{TOKEN(sections), .type = CONFIG_LIST, .default_value = "", .reloadable = true,
		.help = "The [lookback] and [deliver] sections that the caller may use, separated "
			"by commas. Empty: all sections; then a caller with the role send needs "
			"types."},
	{TOKEN(types), .type = CONFIG_LIST, .default_value = "", .reloadable = true,
		.help = "Business types that the caller may use, separated by commas. "
			"orders.* stands for all types that begin with \"orders.\", and * for "
			"all types. Empty: all types of its sections."},

	{API(listen), .type = CONFIG_ADDRESS, .default_value = "",
		.help = "Address of the interface: host:port, or a port on 127.0.0.1, for "
		    "example 9188. Empty: no interface."},
	{API(remote), .type = CONFIG_CHOICE, .default_value = "no", .choices = answers,
		.help = "Whether listen may be an address that other machines can reach. Tokens "
			"and messages are sent in clear text without tls_certificate."},
	{API(host), .type = CONFIG_LIST, .default_value = "",
		.help = "Host names by which clients call the interface, for example "
			"relay.example. A request is refused if its Host field is not one of "
			"them, the name or address of listen, or localhost. This stops web pages "
			"that let another name resolve to this address."},
	{CONFIG_API, "tls_certificate", CONFIG_TEXT, offsetof(struct config, api.tls.certificate), "",
		.help = "File with the certificate of the interface and its chain (PEM), for https. "
			"Changed files are used within a second. Empty: plain HTTP."},
	{CONFIG_API, "tls_key", CONFIG_TEXT, offsetof(struct config, api.tls.key), "",
		.help = "File with the private key of tls_certificate (PEM)."},
	{CONFIG_API, "arrival", CONFIG_DURATION, offsetof(struct config, api.arrival_ms), "60s", SECOND,
		HOUR,
		.help = "Maximum time for a request to arrive. After that its connection is "
		    "closed."},
	{API(max_body), .type = CONFIG_BYTES, .default_value = "8MiB", .low = 1024, .high = 256 * MIB,
		.help = "Maximum size of a request."},
	{API(console), .type = CONFIG_CHOICE, .default_value = "yes", .choices = answers,
		.help = "Whether the interface has the console: pages for a browser at /console/, "
			"where an operator logs in with a token of a [token] section."},
	{API(public_url), .type = CONFIG_TEXT, .default_value = "",
		.help = "URL at which browsers reach the interface behind a proxy, for example "
			"https://relay.example. Requests of the console must come from pages of "
			"this URL, its host is one of the names of host, and with https the "
			"browser sends its session over TLS only. Empty: the address that the "
			"browser calls."},
	{API(advertise), .type = CONFIG_TEXT, .default_value = "",
		.help = "URL at which operators reach this process and no other one, for example "
			"http://relay-1.example:9188. Every process with the same database names "
			"it for the shards that this process owns, and consoles link to it. "
			"Empty: no link."},
	{API(session_key), .type = CONFIG_TEXT, .default_value = "", .reloadable = true,
		.help = "Secret of at least 32 characters that signs sessions of the console. "
			"Processes with one secret accept each other's sessions, and a change ends "
			"all sessions. Empty: made from all tokens, so that any change of a token "
			"ends all sessions."},
	{CONFIG_API, "session_key_file", CONFIG_FILE, .default_value = "", .reloadable = true,
		.help = "File that holds the session_key; use it instead of session_key."},
	{CONFIG_API, "session_idle", CONFIG_DURATION, offsetof(struct config, api.session_idle_ms),
		"1h", MINUTE, 7 * DAY,
		.help = "A session ends after this time without a request. A visible page of the "
			"console sends requests."},
	{CONFIG_API, "session_max", CONFIG_DURATION, offsetof(struct config, api.session_max_ms),
		"12h", MINUTE, 30 * DAY,
		.help = "A session ends this time after its login."},

	{CONFIG_ADMIN, "listen", CONFIG_ADDRESS, offsetof(struct config, admin_listen), "",
		.help = "Address of the endpoint: host:port, or a port on 127.0.0.1, for example "
		    "9187. Empty: no endpoint."},
	{CONFIG_ADMIN, "remote", CONFIG_CHOICE, offsetof(struct config, admin_remote), "no",
		.choices = answers,
		.help = "Whether listen may be an address that other machines can reach. "
			"Everybody who reaches it can read the metrics and the state of every "
			"publisher without a token."},
	{CONFIG_ADMIN, "host", CONFIG_LIST, offsetof(struct config, admin_host), "",
		.help = "Host names by which probes and Prometheus call the endpoint, as in [api]."},
	{CONFIG_ADMIN, "tls_certificate", CONFIG_TEXT, offsetof(struct config, admin_tls.certificate),
		"",
		.help = "File with the certificate of the endpoint and its chain (PEM), for https. "
			"Changed files are used within a second. Empty: plain HTTP."},
	{CONFIG_ADMIN, "tls_key", CONFIG_TEXT, offsetof(struct config, admin_tls.key), "",
		.help = "File with the private key of tls_certificate (PEM)."},

	{CONFIG_LOG, "level", CONFIG_CHOICE, offsetof(struct config, log_level), "info",
		.choices = levels, .reloadable = true,
		.help = "Lowest level that is logged."},
	{CONFIG_LOG, "format", CONFIG_CHOICE, offsetof(struct config, log_format), "logfmt",
		.choices = formats, .reloadable = true,
		.help = "Format of a line."},
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
