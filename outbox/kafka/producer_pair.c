#include "producer_pair.h"

#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "memory.h"
#include "text.h"

struct producer_pair {
	struct producer *producers[2];
	int count;               /* 1: without transactions */
	int turn;                /* the producer of the open transaction, or of the next one */
	enum producer_call call; /* the last one that began */
	enum producer_outcome inits[2]; /* of the INIT */
};

struct producer_pair *producer_pair_create(const struct kafka_settings *kafka,
    const char *transactional_id, int64_t queue_bytes, int64_t queue_messages, int topics,
    int64_t linger_ms, struct err *err)
{
	struct producer_pair *pair = xcalloc(1, sizeof *pair);

	pair->count = transactional_id ? 2 : 1;
	for (int i = 0; i < pair->count; i++) {
		char id[200];

		snprintf(id, sizeof id, "%s.%c", transactional_id ? transactional_id : "", 'a' + i);
		pair->producers[i] = producer_create_lingering(kafka, transactional_id ? id : NULL,
		    queue_bytes, queue_messages, topics, linger_ms, err);
		if (!pair->producers[i]) {
			producer_pair_destroy(pair, 0);
			return NULL;
		}
	}
	return pair;
}

void producer_pair_destroy(struct producer_pair *pair, int wait_ms)
{
	int64_t end = clock_ms() + wait_ms;

	if (!pair)
		return;
	for (int i = 0; i < 2; i++) {
		int64_t left = end - clock_ms();

		producer_destroy(pair->producers[i], left > 0 ? (int)left : 0);
	}
	free(pair);
}

/* --- transactions ---------------------------------------------------------------------------- */

void producer_pair_begin(struct producer_pair *pair, enum producer_call call)
{
	pair->call = call;
	if (call == PRODUCER_COMMIT) {
		producer_begin(pair->producers[pair->turn], call);
		pair->turn = 1 - pair->turn;
		return;
	}
	for (int i = 0; i < pair->count; i++) {
		pair->inits[i] = PRODUCER_CALLING;
		producer_begin(pair->producers[i], call);
	}
}

/* Done when both are done, so that no former producer can write. */
static enum producer_outcome work_on_inits(struct producer_pair *pair, struct err *ret_why)
{
	enum producer_outcome outcome = PRODUCER_DONE;

	for (int i = 0; i < pair->count; i++) {
		if (pair->inits[i] == PRODUCER_CALLING)
			pair->inits[i] = producer_work(pair->producers[i], ret_why);
		if (pair->inits[i] == PRODUCER_FAILED)
			return PRODUCER_FAILED;
		if (pair->inits[i] != PRODUCER_DONE)
			outcome = pair->inits[i];
	}
	if (outcome == PRODUCER_DONE)
		pair->inits[0] = pair->inits[1] = PRODUCER_NO_CALL;
	return outcome;
}

enum producer_outcome producer_pair_work(struct producer_pair *pair, struct err *ret_why)
{
	if (pair->call == PRODUCER_INIT)
		return work_on_inits(pair, ret_why);
	return producer_work(pair->producers[1 - pair->turn], ret_why);
}

struct producer *producer_pair_turn(struct producer_pair *pair)
{
	return pair->producers[pair->turn];
}

/* --- both ------------------------------------------------------------------------------------ */

void producer_pair_fds(const struct producer_pair *pair, int ret_fds[2])
{
	for (int i = 0; i < 2; i++)
		ret_fds[i] = pair->producers[i] ? producer_fd(pair->producers[i]) : -1;
}

int producer_pair_poll(struct producer_pair *pair, struct producer_report *reports, int max)
{
	int count = 0;

	for (int i = 0; i < pair->count && count < max; i++)
		count += producer_poll(pair->producers[i], reports + count, max - count);
	return count;
}

bool producer_pair_is_fatal(const struct producer_pair *pair, struct err *ret_why)
{
	for (int i = 0; i < pair->count; i++)
		if (producer_is_fatal(pair->producers[i], ret_why))
			return true;
	return false;
}

bool producer_pair_is_bloated(const struct producer_pair *pair)
{
	for (int i = 0; i < pair->count; i++)
		if (producer_is_bloated(pair->producers[i]))
			return true;
	return false;
}

bool producer_pair_is_stale(const struct producer_pair *pair)
{
	for (int i = 0; i < pair->count; i++)
		if (producer_is_stale(pair->producers[i]))
			return true;
	return false;
}

void producer_pair_close_topic(struct producer_pair *pair, const char *topic)
{
	for (int i = 0; i < pair->count; i++)
		producer_close_topic(pair->producers[i], topic);
}

bool producer_pair_knows(
    struct producer_pair *pair, const char *topic, int32_t partitions, int wait_ms)
{
	bool knows = true;

	for (int i = 0; i < pair->count && knows; i++) {
		struct err err;
		struct producer_topic *handle = producer_topic(pair->producers[i], topic, &err);

		knows = handle && producer_knows(pair->producers[i], handle, partitions, wait_ms);
	}
	return knows;
}

int64_t producer_pair_last_error(const struct producer_pair *pair, char *ret_text, size_t size)
{
	int64_t when = producer_last_error(pair->producers[0], ret_text, size);
	char text[1024];
	int64_t second =
	    pair->count > 1 ? producer_last_error(pair->producers[1], text, sizeof text) : 0;

	if (second <= when)
		return when;
	text_copy(ret_text, size, text);
	return second;
}

static int64_t larger_of(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

int64_t producer_pair_heard(const struct producer_pair *pair)
{
	int64_t heard = producer_heard(pair->producers[0]);
	int64_t second = pair->count > 1 ? producer_heard(pair->producers[1]) : 0;

	return larger_of(heard, second);
}

struct producer_figures producer_pair_figures(const struct producer_pair *pair)
{
	struct producer_figures sum = producer_figures(pair->producers[0]);

	if (pair->count == 1)
		return sum;

	struct producer_figures second = producer_figures(pair->producers[1]);
	sum.queue_messages += second.queue_messages;
	sum.queue_bytes += second.queue_bytes;
	sum.requests += second.requests;
	sum.bytes_sent += second.bytes_sent;
	sum.broker_rtt_us = larger_of(sum.broker_rtt_us, second.broker_rtt_us);
	sum.brokers_up = larger_of(sum.brokers_up, second.brokers_up);
	sum.at_ms = larger_of(sum.at_ms, second.at_ms);
	return sum;
}
