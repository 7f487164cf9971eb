#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api_sender.h"
#include "clock.h"
#include "logging.h"
#include "producer.h"
#include "text.h"

/*
 * A producer that accepts everything at once, except that it does not know a topic when asked for
 * the first time. The functions of this file replace those of the library.
 */
struct producer {
	const char *known[8];
	int known_count;
	void *sent[8];
	int sent_count, reported;
};

static struct producer the_producer;
static char order[64]; /* values in the order in which they were sent */
static _Atomic bool all_put;
static _Atomic int outcomes;
static int turns;         /* since all records were put; of the sender's thread */
static bool topics_exist; /* of the sender's thread */

struct known_topic topic_metadata_get(
    struct topic_metadata *metadata, const char *topic, int64_t max_age_ms)
{
	(void)metadata, (void)topic, (void)max_age_ms;
	return (struct known_topic){
	    .state = topics_exist ? TOPIC_THERE : TOPIC_UNKNOWN, .partitions = 1};
}

void topic_metadata_watch(struct topic_metadata *metadata, int event_fd)
{
	(void)metadata, (void)event_fd;
}

void topic_metadata_unwatch(struct topic_metadata *metadata, int event_fd)
{
	(void)metadata, (void)event_fd;
}

struct producer *producer_create(const struct kafka_settings *kafka, const char *transactional_id,
    int64_t queue_bytes, int64_t queue_messages, int topics, struct err *err)
{
	(void)kafka, (void)transactional_id, (void)queue_bytes, (void)queue_messages;
	(void)topics, (void)err;
	return &the_producer;
}

void producer_destroy(struct producer *producer, int wait_ms)
{
	(void)producer, (void)wait_ms;
}

int producer_fd(const struct producer *producer)
{
	(void)producer;
	return -1;
}

struct producer_topic *producer_topic(struct producer *producer, const char *name, struct err *err)
{
	(void)producer, (void)err;
	return (struct producer_topic *)name;
}

bool producer_knows(
    struct producer *producer, struct producer_topic *topic, int32_t partitions, int wait_ms)
{
	(void)partitions, (void)wait_ms;
	for (int i = 0; i < producer->known_count; i++)
		if (text_equal(producer->known[i], (const char *)topic))
			return true;
	producer->known[producer->known_count++] = (const char *)topic;
	return false;
}

bool producer_send(struct producer *producer, const struct producer_record *record, struct err *err)
{
	size_t length = strlen(order);

	(void)err;
	snprintf(order + length, sizeof order - length, "%.*s ", (int)record->payload_length,
	    (const char *)record->payload);
	producer->sent[producer->sent_count++] = record->opaque;
	return true;
}

int producer_poll(struct producer *producer, struct producer_report *reports, int max)
{
	int count = 0;

	for (; producer->reported < producer->sent_count && count < max; count++)
		reports[count] = (struct producer_report){
		    .opaque = producer->sent[producer->reported++], .offset = count};
	return count;
}

/* The sender calls this once in a turn, between taking what was put and sending it. */
bool producer_is_fatal(const struct producer *producer, struct err *ret_why)
{
	(void)producer, (void)ret_why;
	/* The turn behind the one that saw all_put has taken all records. */
	if (atomic_load(&all_put))
		topics_exist = ++turns >= 2;
	return false;
}

bool producer_is_stale(const struct producer *producer)
{
	(void)producer;
	return false;
}

int64_t producer_last_error(const struct producer *producer, char *ret_text, size_t size)
{
	(void)producer;
	text_copy(ret_text, size, "");
	return 0;
}

enum err_kind producer_error_kind(int32_t error)
{
	(void)error;
	return ERR_RETRY;
}

const char *producer_error_text(int32_t error)
{
	(void)error;
	return "";
}

/* --- tests ----------------------------------------------------------------------------------- */

static void count_outcome(void *context, const struct api_outcome *outcome)
{
	(void)context;
	assert_null(outcome->code);
	atomic_fetch_add(&outcomes, 1);
}

static void put(struct api_sender *sender, const char *topic, const char *value)
{
	api_sender_put(sender, &(const struct api_record){.topic = topic,
				   .key = xstrdup("key"),
				   .value = xstrdup(value),
				   .length = strlen(value),
				   .give_up_ms = clock_ms() + 60000,
				   .done = count_outcome});
}

static void a_topic_that_waits_keeps_its_order_when_another_one_waits_too(void **state)
{
	static const struct kafka_settings kafka = {.name = "main"};
	struct err err;
	struct api_sender *sender = api_sender_start(&kafka, NULL, &err);

	(void)state;
	put(sender, "a", "a1");
	put(sender, "b", "b1");
	put(sender, "a", "a2");
	atomic_store(&all_put, true);
	api_sender_stop(sender);
	assert_int_equal(atomic_load(&outcomes), 3);
	assert_string_equal(order, "a1 b1 a2 ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_topic_that_waits_keeps_its_order_when_another_one_waits_too),
	};

	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
