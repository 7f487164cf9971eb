/*
 * Denied partitions. A partition may answer every record with an error that blames no record: the
 * relay has no permission, the broker cannot compress the records, or the broker failed without
 * saying why. Each such answer costs a producer, and with it a pause of every other partition. So a
 * denied partition gets no records for a second, then two, four … up to a minute. Partitions of one
 * topic with about the same pause are tried together.
 *
 *   try 1, 2       its records are held
 *   try 3          the record that failed alone is parked with the error, like a refused one: the
 *                  record may be the cause
 *   from try 4 on  the partition is stalled (record_queue_stalls.c): its records are parked, so
 *                  that other partitions do not wait for them, and come back for the next try
 *
 * An acknowledgement ends the denial. If two partitions of a topic fail and no partition of it has
 * acknowledged a record since, or if the error names the topic, the whole topic is denied: its
 * partitions are tried together, and no record is blamed. If the topic's policy is to stop at
 * refused records, nothing is parked and the tries go on. While messages crash the relay
 * (poison_guard.h), the first try decides: the owner may not live until the second.
 */
#include <stdlib.h>
#include <utlist.h>

#include "backoff.h"
#include "record_queue_private.h"

enum { FIRST_MS = 1000, CAP_MS = 60000, TRIES = 3 };

struct denial {
	struct topic *topic;
	int64_t until; /* the end of the newest pause */
	int failing;   /* number of partitions without an acknowledgement since they failed */
	bool answered; /* some partition acknowledged a record since the first one failed */
	int tries;     /* of the whole topic; 0: its partitions are tried one by one */
	uint64_t seed;
	char error[256];
	struct denial *prev, *next;
};

static struct denial *denial_of(struct record_queue *queue, struct topic *topic)
{
	if (topic->denial)
		return topic->denial;
	topic->denial = xcalloc(1, sizeof *topic->denial);
	topic->denial->topic = topic;
	DL_APPEND(queue->denials, topic->denial);
	return topic->denial;
}

/*
 * Partitions whose pauses end at about the same time are tried together, since each try may cost a
 * producer.
 */
static void choose_pause_end(struct denial *denial, int64_t now, int tries)
{
	struct backoff backoff = {.first_ms = FIRST_MS,
	    .cap_ms = CAP_MS,
	    .jitter = 0.2,
	    .attempts = tries - 1,
	    .seed = denial->seed++};
	int64_t pause = backoff_next_ms(&backoff);

	if (denial->until < now + pause / 2 || denial->until > now + pause)
		denial->until = now + pause;
}

static void bar_partition(
    struct record_queue *queue, struct partition_queue *partition, int64_t until)
{
	if (queue->barred_count == 0 || until < queue->bars_end_at)
		queue->bars_end_at = until;
	queue->barred_count += !partition_is_barred(partition);
	partition->barred_until = until;
}

static void unbar_partition(struct record_queue *queue, struct partition_queue *partition)
{
	if (!partition_is_barred(partition))
		return;
	queue->barred_count--;
	partition->barred_until = 0;
	if (partition->wait.stall != STALL_PARKS)
		partition->wait.since = 0; /* it did not wait for an answer */
	if (record_queue_tail_is_known(partition))
		record_queue_partition_recovers(queue, partition);
	record_queue_list_ready(queue, partition);
}

/* A record from outbox.parked was tried before: its first failure counts, to save the partition
 * time. */
static bool may_be_the_cause(const struct record_queue *queue,
    const struct partition_queue *partition, const struct record *record)
{
	bool suspect = queue->hurries || partition->failures % TRIES == 0 ||
		       (record->from_parked && partition->failures < TRIES);

	return suspect && partition->solo && !partition->topic->denial->tries &&
	       partition->topic->policy != STREAM_STOP;
}

static void deny_topic(struct record_queue *queue, int64_t now, struct topic *topic)
{
	choose_pause_end(topic->denial, now, ++topic->denial->tries);
	for (int32_t p = 0; p < topic->partition_queue_count; p++)
		bar_partition(queue, topic->partition_queues[p], topic->denial->until);
}

bool record_queue_deny(
    struct record_queue *queue, int64_t now, uint64_t sequence, bool of_topic, const char *error)
{
	const struct record *record = record_queue_at(queue, sequence);
	struct topic *topic = record->topic;
	struct partition_queue *partition = topic->partition_queues[record->partition];
	struct denial *denial = denial_of(queue, topic);

	text_copy(denial->error, sizeof denial->error, error);
	if (partition_is_barred(
		partition)) /* another record or partition has reported the error before */
		return false;

	denial->failing += partition->failures++ == 0;
	if (of_topic || denial->tries || (denial->failing > 1 && !denial->answered)) {
		deny_topic(queue, now, topic);
		return false;
	}
	choose_pause_end(denial, now, partition->failures);
	bar_partition(queue, partition, denial->until);
	return may_be_the_cause(queue, partition, record);
}

void record_queue_denials_hurry(struct record_queue *queue, bool hurries)
{
	queue->hurries = hurries;
}

bool record_queue_denial_parks(struct record_queue *queue, struct partition_queue *partition)
{
	const struct denial *denial = partition->topic->denial;
	int tries = denial->tries ? denial->tries : partition->failures;

	if ((tries <= TRIES && !queue->hurries) || partition->topic->policy == STREAM_STOP)
		return false;
	if (partition->wait.stall != STALL_PARKS)
		record_queue_partition_stalls(queue, partition);
	return true;
}

static void drop_denial(struct record_queue *queue, struct topic *topic)
{
	DL_DELETE(queue->denials, topic->denial);
	free(topic->denial);
	topic->denial = NULL;
}

void record_queue_admit(struct record_queue *queue, struct partition_queue *partition)
{
	struct topic *topic = partition->topic;
	struct denial *denial = topic->denial;

	denial->answered = true;
	denial->failing -= partition->failures > 0;
	partition->failures = 0;
	if (denial->failing && !denial->tries && !partition_is_barred(partition))
		return;

	denial->tries = 0;
	for (int32_t p = 0; p < topic->partition_queue_count; p++)
		if (!topic->partition_queues[p]->failures)
			unbar_partition(queue, topic->partition_queues[p]);
	if (!denial->failing)
		drop_denial(queue, topic);
}

void record_queue_denials_step(struct record_queue *queue, int64_t now)
{
	const struct denial *denial;

	if (!queue->barred_count || now < queue->bars_end_at)
		return;
	queue->bars_end_at = INT64_MAX;
	DL_FOREACH(queue->denials, denial)
	{
		for (int32_t p = 0; p < denial->topic->partition_queue_count; p++) {
			struct partition_queue *partition = denial->topic->partition_queues[p];

			if (!partition_is_barred(partition))
				continue;
			if (now >= partition->barred_until)
				unbar_partition(queue, partition);
			else if (partition->barred_until < queue->bars_end_at)
				queue->bars_end_at = partition->barred_until;
		}
	}
}

int64_t record_queue_denials_due(const struct record_queue *queue, int64_t now)
{
	return queue->barred_count && now < queue->bars_end_at ? queue->bars_end_at : INT64_MAX;
}

const char *record_queue_denial_error(const struct topic *topic)
{
	return topic->denial ? topic->denial->error : NULL;
}

static bool has_waiting_records(const struct partition_queue *partition)
{
	bool denied = partition->failures || partition->topic->denial->tries;

	return denied && (partition->held.head || partition->wait.stall != STALL_NONE ||
			     partition->under_way);
}

const char *record_queue_denied_topic(const struct record_queue *queue, const char **ret_error)
{
	const struct denial *denial;

	DL_FOREACH(queue->denials, denial)
	{
		for (int32_t p = 0; p < denial->topic->partition_queue_count; p++) {
			if (!has_waiting_records(denial->topic->partition_queues[p]))
				continue;
			*ret_error = denial->error;
			return denial->topic->name;
		}
	}
	return NULL;
}

int record_queue_denied(const struct record_queue *queue)
{
	return queue->barred_count;
}

void record_queue_denial_forget(struct record_queue *queue, struct topic *topic)
{
	if (!topic->denial)
		return;
	for (int32_t p = 0; p < topic->partition_queue_count; p++) {
		struct partition_queue *partition = topic->partition_queues[p];

		queue->barred_count -= partition_is_barred(partition);
		partition->barred_until = 0;
		partition->failures = 0;
	}
	drop_denial(queue, topic);
}
