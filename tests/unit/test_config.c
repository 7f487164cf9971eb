#include "config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define TOKEN "[token \"x\"]\nroles = read\ntokens = 0123456789abcdef\n"

static char *no_environ[] = {NULL};

#define ENVIRON(...) ((char *[]){__VA_ARGS__, NULL})

static struct config *parse(const char *ini, char *const *environ_list)
{
	struct err err;
	struct config *config = config_parse("relay.ini", ini, environ_list, &err);

	if (!config)
		fail_msg("%s", err.message);
	return config;
}

static void assert_refused(const char *ini, char *const *environ_list, const char *message)
{
	struct err err;
	struct config *config = config_parse("relay.ini", ini, environ_list, &err);

	if (config)
		fail_msg("accepted: %s", ini);
	assert_string_equal(err.message, message);
	assert_int_equal(err.kind, ERR_CONFIG);
}

static const char *property(const struct kafka_settings *kafka, const char *name)
{
	for (int i = 0; i < kafka->property_count; i++)
		if (strcmp(kafka->properties[i].name, name) == 0)
			return kafka->properties[i].value;
	return NULL;
}

/* A file in /tmp with that content; its name is written over the pattern. */
static void write_file(char *pattern, const char *content)
{
	int fd = mkstemp(pattern);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	close(fd);
}

static void assert_is_default(const struct config *config)
{
	const struct config_publisher *publisher = config_find_publisher(config, "main");
	const struct postgres_settings *postgres = config_find_postgres(config, "main");

	assert_int_equal(config->publisher_count, 1);
	assert_int_equal(config->postgres_count, 1);
	assert_int_equal(config->kafka_count, 1);
	assert_non_null(publisher);
	assert_ptr_equal(publisher->settings.postgres, postgres);
	assert_ptr_equal(publisher->settings.kafka, &config->kafka[0]);
	assert_string_equal(postgres->dsn, "");
	assert_string_equal(postgres->schema, "outbox");
	assert_int_equal(postgres->partition_every_ms, 86400000);
	assert_int_equal(postgres->partitions_ahead, 1);
	assert_int_equal(postgres->retain_ms, 3 * 86400000);
	assert_int_equal(postgres->retention, RETENTION_DROP);
	assert_int_equal(postgres->upkeep_interval_ms, 60000);
	assert_string_equal(config->kafka[0].name, "main");
	assert_int_equal(config->kafka[0].property_count, 0);
	assert_int_equal(publisher->shards, 0);
	assert_int_equal(publisher->settings.max_in_flight, 20000);
	assert_int_equal(publisher->settings.memory, 24 << 20);
	assert_int_equal(publisher->settings.lease_ms, 5000);
	assert_int_equal(publisher->settings.pace, PACE_BALANCED);
	assert_int_equal(publisher->settings.poll_busy_ms, 3);
	assert_int_equal(publisher->settings.poll_idle_ms, 70);
	assert_int_equal(publisher->settings.ack_interval_ms, 200);
	assert_int_equal(publisher->settings.stall_after_ms, 60000);
	assert_int_equal(publisher->settings.retry_first_ms, 1000);
	assert_int_equal(publisher->settings.retry_max_ms, 300000);
	assert_int_equal(publisher->settings.max_attempts, 10);
	assert_int_equal(publisher->settings.timestamp, TIMESTAMP_CREATED);
	assert_int_equal(publisher->settings.safety, SAFETY_WARN);
	assert_ptr_equal(publisher->config, config);
	assert_int_equal(config_topic_policy(config, "orders"), STREAM_BLOCK);
	assert_int_equal(config_topic_headers(config, "orders"), TOPIC_HEADERS_FULL);
	assert_string_equal(config->admin_listen, "");
	assert_int_equal(config->log_level, LOG_LEVEL_INFO);
	assert_int_equal(config->log_format, LOG_LOGFMT);
}

static void nothing_at_all_is_the_default_publisher(void **state)
{
	struct config *config = parse("", no_environ);

	(void)state;
	assert_is_default(config);
	assert_int_equal(config->topic_count, 0);
	assert_string_equal(config->publishers[0].origin, "default");
	config_destroy(config);
}

static void the_sample_is_the_defaults_also_without_its_comment_signs(void **state)
{
	struct text sample = {0};
	struct config *config;

	(void)state;
	config_print_sample(&sample);
	config = parse(sample.data, no_environ);
	assert_is_default(config);
	config_destroy(config);
	/* "#key = value" and "#[section]" are settings, "# words" stays a comment */
	for (char *at = sample.data; (at = strchr(at, '#')); at++)
		if ((at == sample.data || at[-1] == '\n') && at[1] && !strchr(" \n", at[1]))
			*at = ' ';
	assert_non_null(strstr(sample.data, "\n lease = 5s\n"));
	config = parse(sample.data, no_environ);
	assert_is_default(config);
	assert_int_equal(config->topic_count, 1);
	assert_string_equal(config->topics[0].name, "orders");
	config_destroy(config);
	text_finish(&sample);
}

static void the_pace_sets_the_polls_that_are_not_configured(void **state)
{
	static const struct {
		const char *text;
		int pace, busy, idle;
	} cases[] = {
	    {"[publisher]\npace = latency\n", PACE_LATENCY, 0, 20},
	    {"[publisher]\npace = balanced\n", PACE_BALANCED, 3, 70},
	    {"[publisher]\npace = economy\n", PACE_ECONOMY, 35, 100},
	    {"[publisher]\npoll_busy = 7ms\npace = economy\n", PACE_ECONOMY, 7, 100},
	    {"[publisher]\npace = latency\npoll_idle = 1s\n", PACE_LATENCY, 0, 1000},
	    {"[publisher]\npace = economy\npoll_busy = 2ms\n", PACE_ECONOMY, 2, 100},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct config *config = parse(cases[i].text, no_environ);
		const struct publisher_settings *settings = &config->publishers[0].settings;

		assert_int_equal(settings->pace, cases[i].pace);
		assert_int_equal(settings->poll_busy_ms, cases[i].busy);
		assert_int_equal(settings->poll_idle_ms, cases[i].idle);
		config_destroy(config);
	}
}

static void every_key_is_read(void **state)
{
	struct config *config =
	    parse("\xef\xbb\xbf; comment\n"
		  "[postgres]\r\n"
		  "dsn = host=/run/x dbname=shop\r\n"
		  "schema=ob_1\n"
		  "partition_every = 1s\npartitions_ahead = 100\n"
		  "retain = 0\nretention = detach\nupkeep_interval = 100ms\n"
		  "[kafka]\n"
		  "bootstrap.servers = a:1,b:2\n"
		  "  acks = all ; indented, with a comment\n"
		  "[publisher]\n"
		  "shards = 64\nmax_in_flight = 1\nmemory = 4GiB\nlease = 1h\n"
		  "pace = economy\npoll_busy = 0\npoll_idle = 1m\nack_interval = 0ms\n"
		  "stall_after = 1d\ntopic_idle = 1d\ntimestamp = publish\nsafety = strict\n"
		  "resume = none\n"
		  "retry_first = 10ms\nretry_max = 1d\nmax_attempts = 1000000\n"
		  "[topic \"orders\"]\non_refusal = stop\nheaders = none\n"
		  "[check \"shop\"]\nurl = grpc://shop\nname_servers = 10.0.0.2\n"
		  "types = orders\nsecret = whsec_x\nbatch = 100\nrate = 0\n"
		  "retry_after_max = 1d\n"
		  "[lookback \"shop\"]\ntypes = orders,  returns\n"
		  "topics = shop.*\ncheck = shop\ncheck_after = 10ms\n"
		  "[api]\nlisten = 9188\narrival = 1s\n"
		  "[token \"x\"]\ntokens = 0123456789abcdef, fedcba9876543210\n"
		  "roles = send, read\ntypes = orders\n"
		  "[admin]\nlisten = 9187\n"
		  "[log]\nlevel = error\nformat = json",
		no_environ);
	const struct config_publisher *publisher = &config->publishers[0];
	const struct postgres_settings *postgres = publisher->settings.postgres;

	(void)state;
	assert_string_equal(postgres->dsn, "host=/run/x dbname=shop");
	assert_string_equal(postgres->schema, "ob_1");
	assert_int_equal(postgres->partition_every_ms, 1000);
	assert_int_equal(postgres->partitions_ahead, 100);
	assert_int_equal(postgres->retain_ms, 0);
	assert_int_equal(postgres->retention, RETENTION_DETACH);
	assert_int_equal(postgres->upkeep_interval_ms, 100);
	assert_string_equal(property(publisher->settings.kafka, "bootstrap.servers"), "a:1,b:2");
	assert_string_equal(property(publisher->settings.kafka, "acks"), "all");
	assert_string_equal(publisher->settings.kafka->properties[1].origin, "relay.ini:12");
	assert_string_equal(publisher->origin, "relay.ini:13");
	assert_int_equal(publisher->shards, 64);
	assert_int_equal(publisher->settings.max_in_flight, 1);
	assert_true(publisher->settings.memory == INT64_C(4) << 30);
	assert_int_equal(publisher->settings.lease_ms, 3600000);
	assert_int_equal(publisher->settings.pace, PACE_ECONOMY);
	assert_int_equal(publisher->settings.poll_busy_ms, 0);
	assert_int_equal(publisher->settings.poll_idle_ms, 60000);
	assert_int_equal(publisher->settings.ack_interval_ms, 0);
	assert_int_equal(publisher->settings.stall_after_ms, 86400000);
	assert_int_equal(publisher->settings.topic_idle_ms, 86400000);
	assert_int_equal(publisher->settings.retry_first_ms, 10);
	assert_int_equal(publisher->settings.retry_max_ms, 86400000);
	assert_int_equal(publisher->settings.max_attempts, 1000000);
	assert_int_equal(publisher->settings.resume, RESUME_NONE);
	assert_int_equal(config_topic_policy(config, "orders"), STREAM_STOP);
	assert_int_equal(config_topic_headers(config, "orders"), TOPIC_HEADERS_NONE);
	assert_int_equal(config_topic_headers(config, "other"), TOPIC_HEADERS_FULL);
	assert_int_equal(config->checks[0].transport, CHECK_GRPC);
	assert_string_equal(config->checks[0].name_servers, "10.0.0.2");
	assert_string_equal(config->checks[0].origin, "relay.ini:33");
	assert_int_equal(config->checks[0].rate, 0);
	assert_int_equal(config->checks[0].batch, 100);
	assert_int_equal(config->checks[0].retry_after_max_ms, 86400000);
	assert_ptr_equal(config->lookbacks[0].check, config_find_check(config, "shop"));
	assert_int_equal(config->lookbacks[0].types.count, 2);
	assert_true(config_list_has(&config->lookbacks[0].types, "returns"));
	assert_string_equal(config->lookbacks[0].topics.items[0], "shop.*");
	assert_int_equal(config->lookbacks[0].check_after_ms, 10);
	assert_string_equal(config->api.listen, "127.0.0.1:9188");
	assert_int_equal(config->tokens[0].tokens.count, 2);
	assert_int_equal(config_token_roles(&config->tokens[0]), ROLE_SEND | ROLE_READ);
	assert_string_equal(config_token_for(config, ROLE_READ, NULL), "0123456789abcdef");
	assert_null(config_token_for(config, ROLE_OPERATE, NULL));
	assert_int_equal(config->api.arrival_ms, 1000);
	assert_int_equal(publisher->settings.timestamp, TIMESTAMP_PUBLISH);
	assert_int_equal(publisher->settings.safety, SAFETY_STRICT);
	assert_string_equal(config->admin_listen, "127.0.0.1:9187");
	assert_int_equal(config->log_level, LOG_LEVEL_ERROR);
	assert_int_equal(config->log_format, LOG_JSON);
	config_destroy(config);
}

static void named_sections_are_found_by_their_publishers(void **state)
{
	struct config *config = parse("[publisher \"billing\"]\npostgres = b\nkafka = k.2\n"
				      "[publisher \"empty\"]\npostgres=b\nkafka=k.2\n"
				      "[postgres \"b\"]\ndsn = service=b\n"
				      "[kafka \"k.2\"] ; behind\nacks = all\n",
	    no_environ);
	const struct config_publisher *publisher = config_find_publisher(config, "billing");

	(void)state;
	assert_int_equal(config->publisher_count, 2);
	assert_int_equal(config->postgres_count, 1);
	assert_int_equal(config->kafka_count, 1);
	assert_ptr_equal(publisher->settings.postgres, config_find_postgres(config, "b"));
	assert_string_equal(publisher->settings.kafka->name, "k.2");
	assert_null(config_find_publisher(config, "main"));
	assert_null(config_find_postgres(config, "main"));
	config_destroy(config);
}

static void exactly_once_has_its_own_most_in_flight_unless_it_is_said(void **state)
{
	struct config *config =
	    parse("[publisher \"a\"]\n"
		  "[publisher \"b\"]\ndelivery = exactly-once\n"
		  "[publisher \"c\"]\ndelivery = exactly-once\nmax_in_flight = 20000\n",
		no_environ);

	(void)state;
	assert_int_equal(
	    publisher_settings_in_flight(&config_find_publisher(config, "a")->settings), 20000);
	assert_int_equal(
	    publisher_settings_in_flight(&config_find_publisher(config, "b")->settings), 40000);
	assert_int_equal(
	    publisher_settings_in_flight(&config_find_publisher(config, "c")->settings), 20000);
	config_destroy(config);
}

static void a_topic_has_the_policy_of_its_section_or_the_default(void **state)
{
	struct text ini = {0};
	struct config *config;
	char longest[250] = {0};

	(void)state;
	memset(longest, 'x', sizeof longest - 1);
	text_add(&ini,
	    "[topic \"shop.orders-v2\"]\non_refusal = pass\n[topic \"main\"]\n"
	    "[topic \"Shop_orders\"]\non_refusal=stop\n[publisher \"a\"]\n[publisher \"b\"]\n");
	text_addf(&ini, "[topic \"%s\"]\non_refusal = stop\n", longest);
	config = parse(ini.data, no_environ);
	assert_int_equal(config->topic_count, 4);
	assert_int_equal(config_topic_policy(config, "shop.orders-v2"), STREAM_PASS);
	assert_int_equal(config_topic_policy(config, "Shop_orders"), STREAM_STOP);
	assert_int_equal(config_topic_policy(config, longest), STREAM_STOP);
	assert_int_equal(config_topic_policy(config, "main"), STREAM_BLOCK);
	assert_int_equal(config_topic_policy(config, "shop_orders"), STREAM_BLOCK);
	assert_int_equal(config_topic_policy(config, ""), STREAM_BLOCK);
	for (int i = 0; i < config->publisher_count; i++)
		assert_ptr_equal(config->publishers[i].config, config);
	config_destroy(config);
	text_finish(&ini);
}

static void a_topic_may_have_a_variable_once_it_is_declared(void **state)
{
	struct config *config = parse("[topic \"shop.orders\"]\non_refusal = stop\n[topic \"b\"]\n",
	    ENVIRON("OUTBOX_RELAY_TOPIC_SHOP_ORDERS_ON_REFUSAL=pass"));

	(void)state;
	assert_int_equal(config_topic_policy(config, "shop.orders"), STREAM_PASS);
	assert_int_equal(config_topic_policy(config, "b"), STREAM_BLOCK);
	config_destroy(config);
	assert_refused("[topic \"a\"]", ENVIRON("OUTBOX_RELAY_TOPIC_ON_REFUSAL=pass"),
	    "OUTBOX_RELAY_TOPIC_ON_REFUSAL: a [topic] needs a name; declare [topic \"orders\"] in "
	    "the file, then set OUTBOX_RELAY_TOPIC_ORDERS_<KEY>");
	assert_refused("[topic \"a\"]", ENVIRON("OUTBOX_RELAY_TOPIC_B_ON_REFUSAL=pass"),
	    "OUTBOX_RELAY_TOPIC_B_ON_REFUSAL: no setting has this variable; unset it, or correct "
	    "it to OUTBOX_RELAY_<SECTION>_<KEY> or OUTBOX_RELAY_<SECTION>_<NAME>_<KEY>");
	assert_refused("[topic \"a.b\"]\n[topic \"a_b\"]",
	    ENVIRON("OUTBOX_RELAY_TOPIC_A_B_ON_REFUSAL=pass"),
	    "OUTBOX_RELAY_TOPIC_A_B_ON_REFUSAL: means [topic \"a.b\"] as well as [topic \"a_b\"]; "
	    "rename one of them");
}

static void a_topic_is_named_as_kafka_names_it(void **state)
{
	static const char *const wrong[] = {"", ".", "..", "a b", "a/b", "\xc3\xa4"};
	char *ini, longer[251] = {0};

	(void)state;
	memset(longer, 'x', sizeof longer - 1);
	for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
		ini =
		    xformat("[topic \"%s\"]", i < sizeof wrong / sizeof *wrong ? wrong[i] : longer);
		assert_refused(ini, no_environ,
		    "relay.ini:1: a topic's name is 1 to 249 of a-z, A-Z, 0-9, '_', '.' and '-', "
		    "in double quotes, and neither . nor .., as in Kafka");
		free(ini);
	}
}

static void a_lookback_is_named_and_has_defaults_of_its_own(void **state)
{
	struct config *config = parse("[lookback \"orders\"]\n", no_environ);
	const struct config_lookback *lookback = &config->lookbacks[0];

	(void)state;
	assert_int_equal(config->lookback_count, 1);
	assert_int_equal(lookback->types.count, 1);
	assert_string_equal(lookback->types.items[0], "orders");
	assert_string_equal(lookback->topic, "look_back_msg");
	assert_string_equal(lookback->group, "outbox-relay.orders");
	assert_null(lookback->check);
	assert_string_equal(lookback->postgres->name, "main");
	config_destroy(config);
}

static void lookbacks_that_do_not_agree_are_refused(void **state)
{
	static const struct {
		const char *ini, *message;
	} rows[] = {
	    {"[lookback \"a\"]\ntypes = x y/z\n", "relay.ini:2: [lookback \"a\"] types: 'y/z' is "
						  "not a business type; a type has 1 to 100 of "
						  "a-z, A-Z, 0-9, '_', '.' and '-', and is "
						  "neither '.' nor '..'"},
	    {"[lookback \"a\"]\ndefault = yes\n[lookback \"b\"]\ntypes = x a\n",
		"relay.ini:4: [lookback \"b\"] types: a belongs to [lookback \"a\"] as well; a "
		"type "
		"has one section"},
	    {"[lookback \"a\"]\n[lookback \"b\"]\n",
		"relay.ini:1: [lookback \"a\"] default: several sections read topic look_back_msg, "
		"and none is the default; write default = yes in one of them"},
	    {"[lookback \"a\"]\ndefault = yes\n[lookback \"b\"]\ndefault = yes\n",
		"relay.ini:4: [lookback \"b\"] default: [lookback \"a\"] is the default of this "
		"topic "
		"already"},
	    {"[lookback \"a\"]\ndefault = yes\ngroup = g\n[lookback \"b\"]\ngroup = g\n",
		"relay.ini:5: [lookback \"b\"] group: [lookback \"a\"] has the same group; each "
		"section reads the whole topic in its own group"},
	    {"[lookback \"a\"]\ncheck = x\n", "relay.ini:2: [lookback \"a\"] check: there is no "
					      "[check \"x\"]; declare it, or name "
					      "one that is declared"},
	    {"[lookback \"a\"]\ntopic =\n",
		"relay.ini:2: [lookback \"a\"] topic: it is empty; name the topic"},
	    {"[lookback \"a\"]\ntypes = ..\n", "relay.ini:2: [lookback \"a\"] types: '..' is not "
					       "a business type; a type has 1 to 100 of a-z, "
					       "A-Z, 0-9, '_', '.' and '-', and is neither '.' "
					       "nor '..'"},
	    {"[lookback \".\"]\n", "relay.ini:1: [lookback \".\"] types: '.' is not a business "
				   "type; a type has 1 to 100 of a-z, A-Z, 0-9, '_', '.' and "
				   "'-', and is neither '.' nor '..'"},
	    {"[lookback \"a\"]\ndead_letter = look_back_msg\n",
		"relay.ini:2: [lookback \"a\"] dead_letter: look_back_msg is the topic that "
		"[lookback \"a\"] reads; name another one"},
	    {"[lookback \"a\"]\ntopic = look_back_dead_letter\n",
		"relay.ini:1: [lookback \"a\"] dead_letter: look_back_dead_letter is the topic "
		"that "
		"[lookback \"a\"] reads; name another one"},
	    {"[lookback \"a\"]\ndead_letter = other\n[lookback \"b\"]\ntopic = other\n",
		"relay.ini:2: [lookback \"a\"] dead_letter: other is the topic that "
		"[lookback \"b\"] reads; name another one"},
	    {"[lookback]\n", "relay.ini:1: [lookback] needs a name; write [lookback \"orders\"]"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_refused(rows[i].ini, no_environ, rows[i].message);
	config_destroy(parse("[lookback \"a\"]\n[lookback \"b\"]\ntopic = other\n", no_environ));
}

static void a_deliver_is_named_and_has_defaults_of_its_own(void **state)
{
	struct config *config = parse("[deliver \"billing\"]\nbatch = 9\n", no_environ);
	const struct config_deliver *deliver = &config->delivers[0];

	(void)state;
	assert_int_equal(config->deliver_count, 1);
	assert_int_equal(deliver->topics.count, 1);
	assert_string_equal(deliver->topics.items[0], "billing");
	assert_string_equal(deliver->group, "outbox-relay-deliver-billing");
	assert_string_equal(deliver->kafka->name, "main");
	assert_string_equal(deliver->id, "header:outbox-id");
	assert_string_equal(deliver->origin, "relay.ini:1");
	assert_int_equal(deliver->batch, 1); /* a single one */
	assert_int_equal(deliver->without_id, OUTBOX_INBOX_TO_DEAD_LETTERS);
	assert_int_equal(deliver->rules.count, 0);
	config_destroy(config);
}

static void a_sidecar_has_no_database_and_no_publisher_unless_they_are_declared(void **state)
{
	struct config *config =
	    parse("[deliver \"billing\"]\n", ENVIRON("DATABASE_URL=postgres://x"));

	(void)state;
	assert_int_equal(config->postgres_count, 0);
	assert_int_equal(config->publisher_count, 0);
	assert_int_equal(config->kafka_count, 1);
	config_destroy(config);
	config = parse("[deliver \"billing\"]\n", ENVIRON("OUTBOX_RELAY_POSTGRES_DSN=host=x"));
	assert_int_equal(config->postgres_count, 1);
	assert_int_equal(config->publisher_count, 1);
	config_destroy(config);
	config = parse("[deliver \"billing\"]\n[lookback \"orders\"]\n", no_environ);
	assert_int_equal(config->postgres_count, 1);
	assert_int_equal(config->publisher_count, 1);
	config_destroy(config);
}

static void rules_and_retry_topics_of_a_deliver_are_lists(void **state)
{
	struct config *config =
	    parse("[deliver \"billing\"]\n"
		  "form = batch\n"
		  "batch = 9\n"
		  "topics = orders, returns\n"
		  "rules = | sliding name=a key=\"header:a|b\"  |daily name=b |\n"
		  "retry_topics = orders.1=10s, orders.2=5m\n"
		  "retry_after_max = 0\n",
		no_environ);
	const struct config_deliver *deliver = &config->delivers[0];

	(void)state;
	assert_int_equal(deliver->batch, 9);
	assert_int_equal(deliver->rules.count, 2);
	assert_string_equal(deliver->rules.items[0], "sliding name=a key=\"header:a|b\"");
	assert_string_equal(deliver->rules.items[1], "daily name=b");
	assert_int_equal(deliver->retry_topics.count, 2);
	assert_string_equal(deliver->retry_steps[0].topic, "orders.1");
	assert_int_equal(deliver->retry_steps[0].delay_ms, 10000);
	assert_int_equal(deliver->retry_steps[1].delay_ms, 300000);
	assert_int_equal(deliver->retry_after_max_ms, 0);
	config_destroy(config);
}

static void rules_of_a_deliver_may_stand_in_a_file(void **state)
{
	char path[] = "/tmp/outbox-relay-rules-XXXXXX";
	char ini[200];

	(void)state;
	write_file(path, "sliding name=a\n\n  daily name=b\r\n");
	snprintf(ini, sizeof ini, "[deliver \"billing\"]\nrules_file = %s\n", path);
	struct config *config = parse(ini, no_environ);
	assert_int_equal(config->delivers[0].rules.count, 2);
	assert_string_equal(config->delivers[0].rules.items[1], "daily name=b");
	config_destroy(config);
	unlink(path);
}

static void delivers_that_cannot_work_or_do_not_agree_are_refused(void **state)
{
	static const struct {
		const char *ini, *message;
	} cases[] = {
	    {"[deliver]\n", "relay.ini:1: [deliver] needs a name; write [deliver \"orders\"]"},
	    {"[deliver \"a\"]\ntopics = x y/z\n",
		"relay.ini:2: [deliver \"a\"] topics: 'y/z' is not a topic name; a name has 1 to "
		"249 of a-z, A-Z, 0-9, '_', '.' and '-'"},
	    {"[deliver \"a\"]\nform = batch\nconcurrency = 8\n",
		"relay.ini:1: [deliver \"a\"] batch: it is larger than concurrency, which is 8; "
		"lower batch or raise concurrency"},
	    {"[deliver \"a\"]\nretry_first = 10s\nretry_max = 1s\n",
		"relay.ini:3: [deliver \"a\"] retry_max: it is shorter than retry_first; set at "
		"least the value of retry_first"},
	    {"[deliver \"a\"]\nretry_topics = b\n", "relay.ini:2: [deliver \"a\"] retry_topics: "
						    "'b' is not a topic and a duration; write "
						    "for example orders.retry=10s"},
	    {"[deliver \"a\"]\nretry_topics = b=10\n", "relay.ini:2: [deliver \"a\"] "
						       "retry_topics: '10' is not a duration "
						       "from 0 to 7d; write for example b=10s"},
	    {"[deliver \"a\"]\nretry_topics = b=8d\n", "relay.ini:2: [deliver \"a\"] "
						       "retry_topics: '8d' is not a duration "
						       "from 0 to 7d; write for example b=10s"},
	    {"[deliver \"a\"]\nretry_topics = b=1s, b=2s\n",
		"relay.ini:2: [deliver \"a\"] retry_topics: b is listed twice; remove one of them"},
	    {"[deliver \"a\"]\nretry_topics = a=1s\n",
		"relay.ini:2: [deliver \"a\"] retry_topics: a is also in topics or "
		"dead_letter_topic; use a separate topic"},
	    {"[deliver \"a\"]\nattempts = 0\nretry_topics = b=1s\n",
		"relay.ini:3: [deliver \"a\"] retry_topics: with attempts = 0 no message ever "
		"goes there; set another number of attempts"},
	    {"[deliver \"a\"]\ndead_letter_topic = a\n",
		"relay.ini:2: [deliver \"a\"] dead_letter_topic: a is also in topics; use a "
		"separate topic"},
	    {"[deliver \"a\"]\ndead_letter_topic = a/b\n",
		"relay.ini:2: [deliver \"a\"] dead_letter_topic: 'a/b' is not a topic name; a "
		"name has 1 to 249 of a-z, A-Z, 0-9, '_', '.' and '-'"},
	    {"[deliver \"a\"]\ngroup = g\n[deliver \"b\"]\ngroup = g\n",
		"relay.ini:4: [deliver \"b\"] group: [deliver \"a\"] has the same group; each "
		"section needs its own group"},
	    {"[deliver \"a\"]\npath = /p\n[deliver \"b\"]\npath = /p\n",
		"relay.ini:4: [deliver \"b\"] path: [deliver \"a\"] has the same folder; each "
		"section needs its own folder"},
	    {"[lookback \"a\"]\ngroup = g\n[deliver \"b\"]\ngroup = g\n",
		"relay.ini:4: [deliver \"b\"] group: [lookback \"a\"] has the same group; each "
		"section needs its own group"},
	    {"[deliver \"a\"]\nkafka = x\n", "relay.ini:2: [deliver \"a\"] kafka: there is no "
					     "[kafka \"x\"]; declare it, or name "
					     "one that is declared"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_refused(cases[i].ini, no_environ, cases[i].message);
}

static void a_line_may_be_long(void **state)
{
	struct text ini = {0};
	struct config *config;

	(void)state;
	text_add(&ini, "[kafka]\nbootstrap.servers = ");
	for (int i = 0; i < 1000; i++)
		text_addf(&ini, "broker%03d:9092,", i);
	text_add(&ini, "\n");
	config = parse(ini.data, no_environ);
	assert_int_equal(strlen(property(&config->kafka[0], "bootstrap.servers")), 15000);
	config_destroy(config);
	for (int i = 0; i < 5000; i++)
		text_add(&ini, "; comment, comment");
	assert_refused(ini.data, no_environ,
	    "relay.ini:3: the line is longer than 65534 bytes; put the value in a file and use the "
	    "key with _file");
	text_finish(&ini);
}

static void a_mistake_names_place_and_cure(void **state)
{
	static const char *const pairs[][2] = {
	    {"\n[publisher]\nlease = 5x", "relay.ini:3: [publisher \"main\"] lease: '5x' is not a "
					  "duration; write for example 5s"},
	    {"[publisher \"x\"]\nlease = 5",
		"relay.ini:2: [publisher \"x\"] lease: '5' has no unit; write for example 5s"},
	    {"[publisher]\nlease = ", "relay.ini:2: [publisher \"main\"] lease: '' is not a "
				      "duration; write for example 5s"},
	    {"[publisher]\nlease = -5s",
		"relay.ini:2: [publisher \"main\"] lease: '-5s' is not a duration; "
		"write for example 5s"},
	    {"[publisher]\nlease = 99ms", "relay.ini:2: [publisher \"main\"] lease: '99ms' is out "
					  "of range; write 100ms to 1h"},
	    {"[publisher]\nlease = 61m", "relay.ini:2: [publisher \"main\"] lease: '61m' is out of "
					 "range; write 100ms to 1h"},
	    {"[publisher]\nlease = 999999999999999999d",
		"relay.ini:2: [publisher \"main\"] lease: '999999999999999999d' is out of range; "
		"write 100ms to 1h"},
	    {"[publisher]\nlease = 99999999999999999999s",
		"relay.ini:2: [publisher \"main\"] lease: '99999999999999999999s' is out of range; "
		"write 100ms to 1h"},
	    {"[publisher]\nlease = 0",
		"relay.ini:2: [publisher \"main\"] lease: '0' is out of range; write 100ms to 1h"},
	    {"[publisher]\nmemory = 24M",
		"relay.ini:2: [publisher \"main\"] memory: '24M' is not a size; "
		"write for example 24MiB"},
	    {"[publisher]\nmemory = 5GiB", "relay.ini:2: [publisher \"main\"] memory: '5GiB' is "
					   "out of range; write 1MiB to 4GiB"},
	    {"[publisher]\nshards = two",
		"relay.ini:2: [publisher \"main\"] shards: 'two' is not a whole number; "
		"write for example 0"},
	    {"[publisher]\nshards = 65",
		"relay.ini:2: [publisher \"main\"] shards: '65' is out of range; write 0 to 64"},
	    {"[publisher]\nsafety = Strict",
		"relay.ini:2: [publisher \"main\"] safety: 'Strict' is not a choice; "
		"write warn | strict"},
	    {"[postgres]\nschema = Outbox",
		"relay.ini:2: [postgres \"main\"] schema: 'Outbox' is not a schema name; write up "
		"to "
		"40 of a-z, 0-9 and _, beginning with neither a digit nor pg_"},
	    {"[postgres]\nschema = pg_x",
		"relay.ini:2: [postgres \"main\"] schema: 'pg_x' is not a schema name; write up to "
		"40 of a-z, 0-9 and _, beginning with neither a digit nor pg_"},
	    {"[admin]\nlisten = 70000",
		"relay.ini:2: [admin] listen: '70000' is neither a port nor host:port; "
		"write for example 127.0.0.1:9187"},
	    {"[admin]\nlisten = ::1:80",
		"relay.ini:2: [admin] listen: '::1:80' is neither a port nor host:port; "
		"write for example 127.0.0.1:9187"},
	    {"[log]\nlevle = info", "relay.ini:2: [log] levle: unknown key (did you mean level?); "
				    "[log] has level, format"},
	    {"[api]\nlisten = 9188", "relay.ini:2: [api] listen: no client can use the interface "
				     "without a token; add a section [token \"NAME\"] with "
				     "tokens_file and roles"},
	    {TOKEN "[api]\nlisten = 0.0.0.0:9188",
		"relay.ini:5: [api] listen: other machines could send requests, and tokens in "
		"clear text: set tls_certificate; listen on 127.0.0.1, or write remote = yes"},
	    {TOKEN "[api]\nlisten = relay.example.com:9188",
		"relay.ini:5: [api] listen: other machines could send requests, and tokens in "
		"clear text: set tls_certificate; listen on 127.0.0.1, or write remote = yes"},
	    {"[token \"x\"]\ntokens = 0123456789abcdef, 0123456789abcde\nroles = read",
		"relay.ini:2: [token \"x\"] tokens: token 2 has 15 characters and needs 16; make "
		"one "
		"with: openssl rand -hex 32"},
	    {TOKEN "[api]\ntls_certificate = a.pem",
		"relay.ini:5: [api] tls_certificate: there is no tls_key for it; set both"},
	    {"[admin]\ntls_key = a.key",
		"relay.ini:2: [admin] tls_key: there is no tls_certificate for it; set both"},
	    {"[admin]\nlisten = 0.0.0.0:9187",
		"relay.ini:2: [admin] listen: other machines could read the metrics and the state "
		"of every publisher without a token; listen on 127.0.0.1, or write remote = yes"},
	    {"[publishers]\n",
		"relay.ini:1: unknown section [publishers] (did you mean [publisher]?); there are "
		"[postgres], [kafka], "
		"[publisher], "
		"[topic], [check], [lookback], [deliver], [token], [api], [admin], [log]"},
	    {"[topic]\non_refusal = pass",
		"relay.ini:1: [topic] needs a name; write [topic \"orders\"]"},
	    {"[topic \"a\"]\non_refusal = park",
		"relay.ini:2: [topic \"a\"] on_refusal: 'park' is not a choice; write block | pass "
		"| stop"},
	    {"[topic \"a\"]\n[topic \"a\"]", "relay.ini:2: [topic \"a\"]: duplicate section, "
					     "already at relay.ini:1; keep one of "
					     "them"},
	    {"[publisher]\nretry_first = 9ms",
		"relay.ini:2: [publisher \"main\"] retry_first: '9ms' is out "
		"of range; write 10ms to 1h"},
	    {"[publisher]\nmax_attempts = 0",
		"relay.ini:2: [publisher \"main\"] max_attempts: '0' is out of range; write 1 to "
		"1000000"},
	    {"[publisher]\n\n[publisher \"main\"]",
		"relay.ini:3: [publisher \"main\"]: duplicate section, already at relay.ini:1; "
		"keep one of them"},
	    {"[log]\n[log]",
		"relay.ini:2: [log]: duplicate section, already at relay.ini:1; keep one of them"},
	    {"[publisher]\nlease=5s\nlease=5s",
		"relay.ini:3: [publisher \"main\"] lease: duplicate key, already at relay.ini:2; "
		"keep one of them"},
	    {"[kafka]\nacks=all\nacks=1",
		"relay.ini:3: [kafka \"main\"] acks: duplicate key, already at relay.ini:2; "
		"keep one of them"},
	    {"lease = 5s",
		"relay.ini:1: lease: a key before the first section; write [publisher] or another "
		"section above it"},
	    {"[publisher]\n = 5s", "relay.ini:2: a value without a key; write key = value"},
	    {"[publisher]\nlease", "relay.ini:2: neither a [section] nor key = value"},
	    {"[publisher]\nlease\nlaese = 3", "relay.ini:2: neither a [section] nor key = value"},
	    {"[publisher", "relay.ini:1: write a section as [publisher] or [publisher \"name\"]"},
	    {"[publisher main]",
		"relay.ini:1: write a section as [publisher] or [publisher \"name\"]"},
	    {"[]", "relay.ini:1: write a section as [publisher] or [publisher \"name\"]"},
	    {"[publisher \"a b\"]",
		"relay.ini:1: a section's name is 1 to 63 of a-z, A-Z, 0-9, '_', '.' and '-', in "
		"double quotes"},
	    {"[publisher \"Orders.v2\"]",
		"relay.ini:1: a publisher's name is 1 to 40 of a-z, 0-9, '_' and '-', as in the "
		"database"},
	    {"[log \"x\"]", "relay.ini:1: [log] takes no name; write [log]"},
	    {"[publisher]\nkafka = other", "relay.ini:2: [publisher \"main\"] kafka: there is no "
					   "[kafka \"other\"]; declare it, or "
					   "name one that is declared"},
	    {"\n[publisher]\n[postgres \"x\"]",
		"relay.ini:2: [publisher \"main\"] postgres: there is no "
		"[postgres \"main\"]; declare it, "
		"or name one that is declared"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		assert_refused(pairs[i][0], no_environ, pairs[i][1]);
}

/* A tail is recognised by the headers, and so are messages by a sidecar. */
static void headers_are_left_out_only_where_nothing_needs_them(void **state)
{
	static const char *const good[] = {
	    "[publisher]\nresume = none\n[topic \"a\"]\nheaders = none\n",
	    "[topic \"a\"]\nheaders = full\n",
	    "[publisher]\ntopics = b.*, c\n[topic \"a\"]\nheaders = none\n",
	    "[publisher]\nresume = none\n[topic \"a\"]\nheaders = none\n[deliver \"a\"]\n",
	    "[publisher]\nresume = none\n[topic \"a\"]\nheaders = none\n"
	    "[deliver \"a\"]\ndedup = exact\nid = key\n",
	    "[publisher]\nresume = none\n[topic \"a\"]\nheaders = none\n"
	    "[deliver \"a\"]\ndedup = exact\nwithout_id = process\n",
	    "[publisher]\nresume = none\n[topic \"a\"]\nheaders = none\n"
	    "[kafka]\n[kafka \"other\"]\n[deliver \"a\"]\ndedup = exact\nkafka = other\n",
	};
	static const char *const pairs[][2] = {
	    {"[topic \"a\"]\nheaders = none\n",
		"relay.ini:2: [topic \"a\"] headers: none needs resume = none in [publisher "
		"\"main\"] (default), because a takeover recognizes records by outbox-id and "
		"outbox-position; set it there, or headers = full here"},
	    {"[publisher \"x\"]\nresume = none\n[publisher \"y\"]\n"
	     "delivery = exactly-once\ntopics = a*\n[topic \"ab\"]\nheaders = none\n",
		"relay.ini:7: [topic \"ab\"] headers: none needs delivery = at-least-once and "
		"resume = none in [publisher \"y\"] (relay.ini:3), because a takeover recognizes "
		"records by outbox-id and outbox-position; set both there, or headers = full here"},
	    {"[publisher]\nresume = none\n[topic \"a\"]\nheaders = none\n"
	     "[deliver \"d\"]\ntopics = b, a\ndedup = exact\nid = key, header:outbox-id\n",
		"relay.ini:4: [topic \"a\"] headers: none removes the header by which id of "
		"[deliver \"d\"] (relay.ini:5) identifies a message; set id = key, or another "
		"id, there, or headers = full here"},
	    {"[publisher]\nresume = none\n[topic \"a\"]\nheaders = none\n"
	     "[deliver \"a\"]\ndedup = sequence\nid = key\n",
		"relay.ini:4: [topic \"a\"] headers: none removes the header by which dedup of "
		"[deliver \"a\"] (relay.ini:5) identifies a message; set another store there, or "
		"headers = full here"},
	    {"[topic \"a\"]\nheaders = half\n", "relay.ini:2: [topic \"a\"] headers: 'half' is "
						"not a choice; write full | none"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		config_destroy(parse(good[i], no_environ));
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		assert_refused(pairs[i][0], no_environ, pairs[i][1]);
}

static void addresses_are_a_port_or_host_and_port(void **state)
{
	static const char *const pairs[][2] = {{"0", "127.0.0.1:0"}, {"65535", "127.0.0.1:65535"},
	    {"0.0.0.0:9187", "0.0.0.0:9187"}, {"[::1]:80", "[::1]:80"},
	    {"relay.local:1", "relay.local:1"}};
	static const char *const wrong[] = {
	    "host", "host:", ":80", "[]:80", "a b:80", "http://x:80", "x:-1", "-1", "1.5"};

	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		char *ini = xformat("[admin]\nremote = yes\nlisten = %s\n", pairs[i][0]);
		struct config *config = parse(ini, no_environ);
		assert_string_equal(config->admin_listen, pairs[i][1]);
		config_destroy(config);
		free(ini);
	}
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char *ini = xformat("[admin]\nlisten = %s\n", wrong[i]);
		assert_null(config_parse("relay.ini", ini, no_environ, NULL));
		free(ini);
	}
}

static void listeners_clash_that_cannot_both_bind(void **state)
{
	static const struct {
		const char *admin, *api;
		bool clash;
	} rows[] = {
	    {"9187", "127.0.0.1:9187", true},
	    {"9187", "9188", false},
	    {"0", "127.0.0.1:0", false},
	    {"localhost:9187", "127.0.0.1:9187", true},
	    {"[::1]:9187", "localhost:9187", true},
	    {"localhost:9187", "127.0.0.2:9187", false},
	    {"127.0.0.1:9187", "[::1]:9187", false},
	    {"127.0.0.1:9187", "[::ffff:127.0.0.1]:9187", true},
	    {"[::1]:9187", "[0:0:0:0:0:0:0:1]:9187", true},
	    {"0.0.0.0:9187", "[::1]:9187", false},
	    {"0.0.0.0:9187", "10.0.0.1:9187", true},
	    {"0.0.0.0:9187", "[::]:9187", true},
	    {"localhost:9187", "0.0.0.0:9187", true},
	    {"127.0.0.1:9187", "[::]:9187", true},
	    {"relay.local:9187", "relay.local:9187", true},
	    {"relay.local:9187", "0.0.0.0:9187", true},
	    {"relay.local:9187", "127.0.0.1:9187", false},
	    {"cafe:9187", "127.0.0.1:9187", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char *ini = xformat("[admin]\nremote = yes\nlisten = %s\n" TOKEN
				    "[api]\nremote = yes\nlisten = %s\n",
		    rows[i].admin, rows[i].api);
		struct err err = {0};
		struct config *config = config_parse("relay.ini", ini, no_environ, &err);

		if ((config == NULL) != rows[i].clash)
			fail_msg("%s, %s: %s", rows[i].admin, rows[i].api, err.message);
		if (rows[i].clash)
			assert_non_null(strstr(err.message, "choose another port"));
		config_destroy(config);
		free(ini);
	}
}

static void the_environment_is_enough(void **state)
{
	struct config *config =
	    parse("", ENVIRON("PATH=/bin", "DATABASE_URL=postgres://shop",
			  "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS=localhost:9092",
			  "OUTBOX_RELAY_PUBLISHER_POLL_IDLE=10ms", "OUTBOX_RELAY_LOG_FORMAT=json",
			  "OUTBOX_RELAY_FAULT=x:1", "OUTBOX_RELAY_FAULT_STOP=x",
			  "OUTBOX_RELAY_FAULT_LIST=/x", "OUTBOX_RELAY_CONFIG=/y"));

	(void)state;
	assert_string_equal(config->postgres[0].dsn, "postgres://shop");
	assert_string_equal(property(&config->kafka[0], "bootstrap.servers"), "localhost:9092");
	assert_string_equal(
	    config->kafka[0].properties[0].origin, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS");
	assert_int_equal(config->publishers[0].settings.poll_idle_ms, 10);
	assert_int_equal(config->log_format, LOG_JSON);
	config_destroy(config);
}

static void the_environment_wins_over_the_file(void **state)
{
	struct config *config = parse(
	    "[publisher]\nlease = 5s\n[publisher \"bill-ing\"]\nlease = 5s\n"
	    "[kafka]\nacks = 1\n[kafka \"b\"]\nacks = 1\n",
	    ENVIRON("OUTBOX_RELAY_PUBLISHER_LEASE=6s", "OUTBOX_RELAY_PUBLISHER_BILL_ING_LEASE=7s",
		"OUTBOX_RELAY_KAFKA_ACKS=all", "OUTBOX_RELAY_KAFKA_B_ACKS=-1"));

	(void)state;
	assert_int_equal(config_find_publisher(config, "main")->settings.lease_ms, 6000);
	assert_int_equal(config_find_publisher(config, "bill-ing")->settings.lease_ms, 7000);
	assert_string_equal(property(&config->kafka[0], "acks"), "all");
	assert_string_equal(property(&config->kafka[1], "acks"), "-1");
	assert_int_equal(config->kafka[1].property_count, 1);
	config_destroy(config);
}

static void the_dsn_has_its_order_of_sources(void **state)
{
	static const char file[] = "[postgres]\ndsn = file\n";
	struct config *config;

	(void)state;
	config = parse(file, ENVIRON("DATABASE_URL=url", "OUTBOX_RELAY_POSTGRES_DSN=variable"));
	assert_string_equal(config->postgres[0].dsn, "variable");
	config_destroy(config);
	config = parse(file, ENVIRON("DATABASE_URL=url"));
	assert_string_equal(config->postgres[0].dsn, "file");
	config_destroy(config);
	config = parse("[postgres]\ndsn =\n", ENVIRON("DATABASE_URL=url"));
	assert_string_equal(config->postgres[0].dsn, "url");
	config_destroy(config);
	config =
	    parse("[postgres \"x\"]\n[publisher]\npostgres = x\n", ENVIRON("DATABASE_URL=url"));
	assert_int_equal(config->postgres_count, 1);
	assert_string_equal(config->postgres[0].dsn, "");
	config_destroy(config);
}

static void a_variable_that_means_nothing_is_refused_by_name(void **state)
{
	(void)state;
	assert_refused("", ENVIRON("OUTBOX_RELAY_PUBLISHER_LAESE=5s"),
	    "OUTBOX_RELAY_PUBLISHER_LAESE: no setting has this variable (did you mean "
	    "OUTBOX_RELAY_PUBLISHER_LEASE?); unset it, or correct it to "
	    "OUTBOX_RELAY_<SECTION>_<KEY> or OUTBOX_RELAY_<SECTION>_<NAME>_<KEY>");
	assert_refused("", ENVIRON("OUTBOX_RELAY_LOG_MAIN_LEVEL=info"),
	    "OUTBOX_RELAY_LOG_MAIN_LEVEL: no setting has this variable; unset it, or correct it to "
	    "OUTBOX_RELAY_<SECTION>_<KEY> or OUTBOX_RELAY_<SECTION>_<NAME>_<KEY>");
	assert_refused("", ENVIRON("OUTBOX_RELAY_PUBLISHER_LEASE=5"),
	    "OUTBOX_RELAY_PUBLISHER_LEASE: [publisher \"main\"] lease: '5' has no unit; write for "
	    "example "
	    "5s");
	assert_refused("[publisher \"x\"]", ENVIRON("OUTBOX_RELAY_PUBLISHER_LEASE=5s"),
	    "OUTBOX_RELAY_PUBLISHER_LEASE: the file declares publishers, but not [publisher "
	    "\"main\"]; name the "
	    "publisher, as in OUTBOX_RELAY_PUBLISHER_<NAME>_<KEY>");
	assert_refused("[publisher \"a-b\"]\n[publisher \"a_b\"]",
	    ENVIRON("OUTBOX_RELAY_PUBLISHER_A_B_LEASE=5s"),
	    "OUTBOX_RELAY_PUBLISHER_A_B_LEASE: means [publisher \"a-b\"] as well as [publisher "
	    "\"a_b\"]; rename "
	    "one of them");
	assert_null(config_parse("", "", ENVIRON("OUTBOX_RELAY_=1"), NULL));
	assert_null(config_parse("", "", ENVIRON("OUTBOX_RELAY_PUBLISHER_=1"), NULL));
	assert_null(config_parse("", "", ENVIRON("OUTBOX_RELAY_KAFKA=1"), NULL));
}

static void secrets_come_from_files(void **state)
{
	char dsn[] = "/tmp/test_config_XXXXXX", password[] = "/tmp/test_config_XXXXXX";
	char *ini, *directory, *variable;
	struct config *config;

	(void)state;
	write_file(dsn, "host=db password='a ;b'\n");
	write_file(password, "geheim\r\n");
	ini = xformat("[postgres]\ndsn_file = %s\n[kafka]\nsasl.password_file = %s\n", dsn,
	    password + strlen("/tmp/"));
	directory = xformat("CREDENTIALS_DIRECTORY=/tmp");
	config = parse(ini, ENVIRON(directory));
	assert_string_equal(config->postgres[0].dsn, "host=db password='a ;b'");
	assert_string_equal(property(&config->kafka[0], "sasl.password"), "geheim");
	assert_null(property(&config->kafka[0], "sasl.password_file"));
	config_destroy(config);

	/* a variable puts the file's way of saying it aside */
	variable = xformat("OUTBOX_RELAY_KAFKA_SASL_PASSWORD_FILE=%s", dsn);
	config = parse("[postgres]\ndsn_file = /nowhere\n[kafka]\nsasl.password = x\n",
	    ENVIRON("OUTBOX_RELAY_POSTGRES_DSN=d", variable));
	assert_string_equal(config->postgres[0].dsn, "d");
	assert_string_equal(
	    property(&config->kafka[0], "sasl.password"), "host=db password='a ;b'");
	assert_int_equal(config->kafka[0].property_count, 1);
	config_destroy(config);
	unlink(dsn);
	unlink(password);
	free(ini);
	free(directory);
	free(variable);
}

static void a_secret_is_said_once_and_must_be_there(void **state)
{
	(void)state;
	assert_refused("[postgres]\ndsn = top secret\ndsn_file = /x\n", no_environ,
	    "relay.ini:3: [postgres \"main\"] dsn_file: dsn is set as well, at relay.ini:2; keep "
	    "one "
	    "of them");
	assert_refused("[kafka]\nsasl.password_file = /nonexistent/x\n", no_environ,
	    "relay.ini:2: [kafka \"main\"] sasl.password_file: /nonexistent/x: cannot be read: No "
	    "such file or directory");
	assert_refused("[postgres]\ndsn_file = /\n", no_environ,
	    "relay.ini:2: [postgres \"main\"] dsn_file: /: cannot be read: Is a directory");
}

static void a_file_is_loaded_or_named(void **state)
{
	char path[] = "/tmp/test_config_XXXXXX";
	struct err err;
	struct config *config;

	(void)state;
	write_file(path, "[publisher \"x\"]\nlease = 9s\n");
	config = config_load(path, &err);
	assert_non_null(config);
	assert_int_equal(config->publishers[0].settings.lease_ms, 9000);
	config_destroy(config);
	unlink(path);
	assert_null(config_load("/nonexistent/relay.ini", &err));
	assert_string_equal(
	    err.message, "/nonexistent/relay.ini: cannot be read: No such file or directory");
	assert_int_equal(err.kind, ERR_CONFIG);
	config_destroy(NULL);
}

static void assert_fixed(const char *before, const char *after, const char *lines)
{
	struct config *running = parse(before, no_environ), *fresh = parse(after, no_environ);
	struct text fixed = {0};

	config_compare(running, fresh, &fixed);
	assert_string_equal(text_string(&fixed), lines);
	text_finish(&fixed);
	config_destroy(running);
	config_destroy(fresh);
}

static void a_most_in_flight_that_is_said_or_not_is_told(void **state)
{
	static const char silent[] = "[publisher \"a\"]\ndelivery = exactly-once\n";
	static const char said[] =
	    "[publisher \"a\"]\ndelivery = exactly-once\nmax_in_flight = 20000\n";

	(void)state;
	assert_fixed(silent, said, "publisher.a.max_in_flight: restart to apply\n");
	assert_fixed(said, silent, "publisher.a.max_in_flight: restart to apply\n");
	assert_fixed(silent, silent, "");
}

static void what_changes_of_a_deliver_needs_a_restart(void **state)
{
	(void)state;
	assert_fixed("[deliver \"a\"]\nrules = daily name=a | daily name=b\n",
	    "[deliver \"a\"]\nrules = daily name=a| daily name=b\n", "");
	assert_fixed("[deliver \"a\"]\nrules = daily name=a\nretry_topics = b=1s\n",
	    "[deliver \"a\"]\nrules = daily name=b\nretry_topics = b=2s\nurl = http://x/\n",
	    "deliver.a.url: restart to apply\ndeliver.a.retry_topics: restart to apply\n");
	assert_fixed("[deliver \"a\"]\nuser = key\nrules_store = redis name=a\n",
	    "[deliver \"a\"]\nuser = topic\nrules_store = redis name=b\n",
	    "deliver.a.rules_store: restart to apply\ndeliver.a.user: restart to apply\n");
	assert_fixed("[deliver \"a\"]\n", "[deliver \"b\"]\n",
	    "deliver.a: removed, restart to apply\ndeliver.b: added, restart to apply\n");
}

/* The relay reads the content again, but from the file that the running configuration names. */
static void another_file_needs_a_restart(void **state)
{
	char here[] = "/tmp/test_config_XXXXXX", there[] = "/tmp/test_config_XXXXXX";
	char *before, *after;

	(void)state;
	write_file(here, "X-Shop: 1\n");
	write_file(there, "X-Shop: 2\n");
	before = xformat("[check \"a\"]\nheaders_file = %s\nclient_secret_file = %s\n", here, here);
	after = xformat("[check \"a\"]\nheaders_file = %s\nclient_secret_file = %s\n", here, there);
	assert_fixed(before, after, "check.a.client_secret_file: restart to apply\n");
	assert_fixed(before, "[check \"a\"]\nheaders = X-Shop: 1\n",
	    "check.a.headers_file: restart to apply\n"
	    "check.a.client_secret: restart to apply\n"
	    "check.a.client_secret_file: restart to apply\n");
	free(before);
	free(after);

	before = xformat("[kafka]\nsasl.password_file = %s\n", here);
	after = xformat("[kafka]\nsasl.password_file = %s\n", there);
	assert_fixed(before, before, "");
	assert_fixed(before, after, "kafka.main.sasl.password: restart to apply\n");
	assert_fixed(before, "[kafka]\nsasl.password = X-Shop: 1\n",
	    "kafka.main.sasl.password: restart to apply\n");
	free(before);
	free(after);

	/* Read at the start only: the content counts, wherever it comes from. */
	before = xformat("[check \"a\"]\nsecret_file = %s\n", here);
	after = xformat("[check \"a\"]\nsecret_file = %s\n", there);
	assert_fixed(before, after, "check.a.secret: restart to apply\n");
	assert_fixed(before, "[check \"a\"]\nsecret = X-Shop: 1\n", "");
	free(before);
	free(after);

	/* A reload reads the rules of whatever file the new configuration names. */
	before = xformat("[deliver \"a\"]\nrules_file = %s\n", here);
	after = xformat("[deliver \"a\"]\nrules_file = %s\n", there);
	assert_fixed(before, after, "");
	free(before);
	free(after);
	unlink(here);
	unlink(there);
}

static void what_may_change_changes_silently(void **state)
{
	(void)state;
	assert_fixed("", "", "");
	assert_fixed("",
	    "[log]\nlevel = debug\nformat = json\n[publisher]\npoll_busy = 1ms\npoll_idle = 9ms\n"
	    "ack_interval = 1s\n[postgres]\nretain = 1d\nretention = detach\npartitions_ahead = 9\n"
	    "upkeep_interval = 1s\n",
	    "");
}

static void what_is_fixed_is_told_without_its_value(void **state)
{
	(void)state;
	assert_fixed("[publisher]\n", "[publisher]\npace = economy\n",
	    "publisher.main.pace: restart to apply\n");
	assert_fixed("[publisher]\n", "[publisher]\nshards = 2\nlease = 9s\n",
	    "publisher.main.shards: restart to apply\npublisher.main.lease: restart to apply\n");
	assert_fixed("[postgres]\ndsn = a\n", "[postgres]\ndsn = b\n",
	    "postgres.main.dsn: restart to apply\n");
	assert_fixed("", "[admin]\nlisten = 1\n", "admin.listen: restart to apply\n");
	assert_fixed("[publisher \"a\"]\n", "[publisher \"b\"]\n",
	    "publisher.a: removed, restart to apply\npublisher.b: added, restart to apply\n");
	assert_fixed("[kafka]\nacks = all\nlinger.ms = 1\n", "[kafka]\nlinger.ms = 2\nx = y\n",
	    "kafka.main.acks: removed, restart to apply\n"
	    "kafka.main.linger.ms: restart to apply\n"
	    "kafka.main.x: added, restart to apply\n");
	assert_fixed("[topic \"a\"]\n[topic \"b\"]\n",
	    "[topic \"c\"]\n[topic \"b\"]\non_refusal = stop\n",
	    "topic.a: removed, restart to apply\ntopic.b.on_refusal: restart to apply\n"
	    "topic.c: added, restart to apply\n");
	assert_fixed("[kafka]\n[kafka \"b\"]\n[publisher]\n",
	    "[kafka]\n[kafka \"b\"]\n[publisher]\nkafka=b\n",
	    "publisher.main.kafka: restart to apply\n");
}

static void the_reference_tells_of_every_key(void **state)
{
	struct text page = {0};

	(void)state;
	config_print_reference(&page);
	assert_non_null(strstr(page.data, "\n| `lease` | 100ms to 1h | `5s` | no | "));
	assert_non_null(
	    strstr(page.data, "\n| `retention` | drop \\| detach \\| archive | `drop` | yes | "));
	assert_non_null(strstr(page.data, "\n| `memory` | 1MiB to 4GiB | `24MiB` | no | "));
	assert_non_null(strstr(page.data, "\n| `listen` | host:port or port | empty | no | "));
	assert_non_null(
	    strstr(page.data, "\n| `on_refusal` | block \\| pass \\| stop | `block` | no | "));
	assert_non_null(strstr(page.data, "\n## [kafka]\n"));
	assert_non_null(strstr(page.data, "\n## [topic \"NAME\"]\n"));
	text_finish(&page);
}

static void the_interface_listens_to_other_machines_only_when_told_to(void **state)
{
	static const char *const addresses[] = {"9188", "127.0.0.1:9188", "127.8.9.1:9188",
	    "[::1]:9188", "localhost:9188", "[::]:9188\nremote = yes",
	    "relay.example.com:9188\nremote = yes"};

	(void)state;
	for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
		char ini[200];
		struct config *config;

		snprintf(ini, sizeof ini, TOKEN "[api]\nlisten = %s\n", addresses[i]);
		config = parse(ini, no_environ);
		assert_int_equal(config->api.remote, strstr(addresses[i], "remote") != NULL);
		config_destroy(config);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_at_all_is_the_default_publisher),
	    cmocka_unit_test(the_sample_is_the_defaults_also_without_its_comment_signs),
	    cmocka_unit_test(the_pace_sets_the_polls_that_are_not_configured),
	    cmocka_unit_test(every_key_is_read),
	    cmocka_unit_test(named_sections_are_found_by_their_publishers),
	    cmocka_unit_test(exactly_once_has_its_own_most_in_flight_unless_it_is_said),
	    cmocka_unit_test(a_topic_has_the_policy_of_its_section_or_the_default),
	    cmocka_unit_test(a_topic_may_have_a_variable_once_it_is_declared),
	    cmocka_unit_test(a_topic_is_named_as_kafka_names_it),
	    cmocka_unit_test(a_lookback_is_named_and_has_defaults_of_its_own),
	    cmocka_unit_test(lookbacks_that_do_not_agree_are_refused),
	    cmocka_unit_test(a_deliver_is_named_and_has_defaults_of_its_own),
	    cmocka_unit_test(a_sidecar_has_no_database_and_no_publisher_unless_they_are_declared),
	    cmocka_unit_test(rules_and_retry_topics_of_a_deliver_are_lists),
	    cmocka_unit_test(rules_of_a_deliver_may_stand_in_a_file),
	    cmocka_unit_test(delivers_that_cannot_work_or_do_not_agree_are_refused),
	    cmocka_unit_test(a_line_may_be_long),
	    cmocka_unit_test(a_mistake_names_place_and_cure),
	    cmocka_unit_test(headers_are_left_out_only_where_nothing_needs_them),
	    cmocka_unit_test(addresses_are_a_port_or_host_and_port),
	    cmocka_unit_test(listeners_clash_that_cannot_both_bind),
	    cmocka_unit_test(the_environment_is_enough),
	    cmocka_unit_test(the_environment_wins_over_the_file),
	    cmocka_unit_test(the_dsn_has_its_order_of_sources),
	    cmocka_unit_test(a_variable_that_means_nothing_is_refused_by_name),
	    cmocka_unit_test(secrets_come_from_files),
	    cmocka_unit_test(a_secret_is_said_once_and_must_be_there),
	    cmocka_unit_test(a_file_is_loaded_or_named),
	    cmocka_unit_test(a_most_in_flight_that_is_said_or_not_is_told),
	    cmocka_unit_test(what_changes_of_a_deliver_needs_a_restart),
	    cmocka_unit_test(another_file_needs_a_restart),
	    cmocka_unit_test(what_may_change_changes_silently),
	    cmocka_unit_test(what_is_fixed_is_told_without_its_value),
	    cmocka_unit_test(the_reference_tells_of_every_key),
	    cmocka_unit_test(the_interface_listens_to_other_machines_only_when_told_to),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
