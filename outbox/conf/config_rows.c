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
	[CONFIG_POSTGRES] = {"postgres", false, false, LIST(postgres), sizeof(struct config_postgres),
		"A database with an outbox, and how its message table is kept."},
	[CONFIG_KAFKA] = {"kafka", true, false, LIST(kafka), sizeof(struct config_kafka),
		"A Kafka cluster. Each key is a librdkafka property under its own name, for example "
		"bootstrap.servers or security.protocol. With _file behind it, as in sasl.password_file, "
		"it names a file that holds the value."},
	[CONFIG_SLOT] = {"slot", false, false, offsetof(struct config, slots),
		offsetof(struct config, slot_count), sizeof(struct config_slot),
		"A reader of the message table with its own progress. Without any, there is \"main\"."},
	[CONFIG_TOPIC] = {"topic", false, true, offsetof(struct config, topics),
		offsetof(struct config, topic_count), sizeof(struct config_topic),
		"What is particular to one topic, named as Kafka spells it. A topic without a section has "
		"the defaults."},
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
static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const formats[] = {"logfmt", "json", NULL};

#define POSTGRES(member) CONFIG_POSTGRES, #member, .offset = offsetof(struct config_postgres, member)
#define POSTGRES_MS(member) \
	CONFIG_POSTGRES, #member, CONFIG_DURATION, offsetof(struct config_postgres, member##_ms)
#define SLOT(member) CONFIG_SLOT, #member, .offset = offsetof(struct config_slot, member)
#define SLOT_MS(member) \
	CONFIG_SLOT, #member, CONFIG_DURATION, offsetof(struct config_slot, member##_ms)

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

	{SLOT(postgres), .type = CONFIG_SECTION, .refers = CONFIG_POSTGRES, .default_value = "main",
		.help = "The [postgres] section the slot reads from."},
	{SLOT(kafka), .type = CONFIG_SECTION, .refers = CONFIG_KAFKA, .default_value = "main",
		.help = "The [kafka] section the slot publishes to."},
	{SLOT(shards), .type = CONFIG_INTEGER, .default_value = "0", .low = 0, .high = 64,
		.help = "The number of shards of the slot; 0 takes what the database says, another number "
			"must agree with it."},
	{SLOT(max_in_flight), .type = CONFIG_INTEGER, .default_value = "20000",
		.low = 1, .high = 1000000,
		.help = "Records produced and not yet covered by stored progress; as many may be published "
			"again after a crash."},
	{SLOT(memory), .type = CONFIG_BYTES, .default_value = "24MiB",
		.low = MIB, .high = 4096 * MIB,
		.help = "Memory for rows that are read and not yet acknowledged, the producer's queue "
			"included."},
	{SLOT_MS(lease), "5s", 100, HOUR,
		.help = "How long an owner that went silent keeps a shard from the others."},
	{SLOT_MS(poll_busy), "3ms", 0, 10 * SECOND, .reloadable = true,
		.help = "The pause between two polls while rows come."},
	{SLOT_MS(poll_idle), "70ms", 1, MINUTE, .reloadable = true,
		.help = "The longest pause between two polls when none come."},
	{SLOT_MS(ack_interval), "200ms", 0, MINUTE, .reloadable = true,
		.help = "How long an acknowledgement may be kept before the progress is stored."},
	{SLOT_MS(stall_after), "60s", SECOND, DAY,
		.help = "A producer that makes no progress for so long is made anew; records of a "
			"partition that takes none while others do are parked."},
	{SLOT(delivery), .type = CONFIG_CHOICE, .default_value = "at-least-once",
		.choices = deliveries,
		.help = "at-least-once: a fault may repeat records. exactly-once: records go out in "
			"transactions of Kafka, and consumers with isolation.level=read_committed see each "
			"of them once; it needs resume = tail."},
	{SLOT(resume), .type = CONFIG_CHOICE, .default_value = "tail", .choices = resumes,
		.help = "What comes before the first record after a take-over, or of a new producer: each "
			"partition is read from its noted offset to its end and what stands there already is "
			"not published again; or nothing, and what was in flight comes twice."},
	{SLOT_MS(retry_first), "1s", 10, HOUR,
		.help = "The pause before a record that Kafka refused for good is tried again; each "
			"further pause is twice as long. Chance takes up to half of a pause off."},
	{SLOT_MS(retry_max), "5m", 10, DAY,
		.help = "The longest pause between two attempts of a refused record."},
	{SLOT(max_attempts), .type = CONFIG_INTEGER, .default_value = "10",
		.low = 1, .high = 1000000,
		.help = "The attempts of a record that Kafka refuses for good; after so many it is dead "
			"and waits for an operator (outbox-relay parked)."},
	{SLOT(timestamp), .type = CONFIG_CHOICE, .default_value = "created", .choices = timestamps,
		.help = "The timestamp of a record: when its row was created, or when it is published."},
	{SLOT(safety), .type = CONFIG_CHOICE, .default_value = "warn", .choices = safeties,
		.help = "What to do on a cluster that can lose acknowledged data: warn, or refuse to run."},

	{CONFIG_TOPIC, "on_refusal", CONFIG_CHOICE, offsetof(struct config_topic, on_refusal), "block",
		.choices = refusals,
		.help = "What follows when Kafka refuses a record of this topic for good. block: it is "
			"parked, and the later ones of its key wait behind it. pass: it is parked, and the "
			"later ones of its key go on, which gives up their order. stop: the slot stops."},

	{CONFIG_ADMIN, "listen", CONFIG_ADDRESS, offsetof(struct config, admin_listen), "",
		.help = "host:port, or a port on 127.0.0.1. Empty: no endpoint."},

	{CONFIG_LOG, "level", CONFIG_CHOICE, offsetof(struct config, log_level), "info",
		.choices = levels, .reloadable = true,
		.help = "The least level that is written."},
	{CONFIG_LOG, "format", CONFIG_CHOICE, offsetof(struct config, log_format), "logfmt",
		.choices = formats, .reloadable = true,
		.help = "The form of a line."},
};
/* clang-format on */
const int config_row_count = sizeof config_rows / sizeof *config_rows;

static_assert(offsetof(struct config_postgres, name) == 0, "config_rows_item_named reads it");
static_assert(offsetof(struct config_kafka, name) == 0, "config_rows_item_named reads it");
static_assert(offsetof(struct config_slot, name) == 0, "config_rows_item_named reads it");
static_assert(offsetof(struct config_topic, name) == 0, "config_rows_item_named reads it");
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
