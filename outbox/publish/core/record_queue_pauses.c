/*
 * Paused topics. An operator pauses a topic of the publisher in outbox.publisher, and each answer
 * of a TICK names the paused ones. From then on no record of the topic goes to the producer.
 * Records in flight are left to end. Then the others are parked like records of a stalled place
 * (record_queue_stalls.c), in their order, at the place PLACE_PAUSED of the topic. So the windows
 * are published to their ends, and other topics go on.
 *
 * A record is parked as paused only when it could be sent: its partition has no record in flight,
 * and its tail shows that Kafka does not have the record. A topic that is missing, or a partition
 * that is silent, stalls first; its rows come back when it recovers, and are parked as paused then.
 * So do rows that were free, refused or scheduled before the pause: each comes back once.
 *
 * When a topic is resumed, its place has recovered: its rows become free in batches and are
 * published in their order, and later records of their keys wait behind them. A new owner learns
 * the paused topics with the shard, and frees the rows of topics that were resumed meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "record_queue_private.h"

static bool is_named(const json_t *topics, const struct topic *topic)
{
	return json_object_get(topics, topic->name) != NULL;
}

void record_queue_pause_new_topic(struct record_queue *queue, struct topic *topic)
{
	topic->paused = is_named(queue->paused, topic);
	topic->unnoted += topic->paused;
}

/* Held records may be parked now, or sent. */
static void list_held_records(struct record_queue *queue, struct topic *topic)
{
	for (int32_t p = 0; p < topic->partition_queue_count; p++)
		record_queue_list_ready(queue, topic->partition_queues[p]);
}

static void pause_topic(struct record_queue *queue, const char *name)
{
	struct topic *topic;

	HASH_FIND(hh, queue->topics, name, strlen(name), topic);
	if (!topic || topic->paused)
		return;
	record_queue_pause_new_topic(queue, topic);
	record_queue_drop_recovered(queue, topic, PLACE_PAUSED);
	list_held_records(queue, topic);
}

static void resume_topic(struct record_queue *queue, const char *name)
{
	struct topic *topic = record_queue_topic_find(queue, name, strlen(name));

	topic->unnoted -= topic->paused;
	topic->paused = false;
	record_queue_topic_use(queue, topic);
	record_queue_add_recovered(queue, topic, PLACE_PAUSED);
	list_held_records(queue, topic);
}

static bool same_topics(const char *one, const char *other)
{
	return one == other || (one && other && text_equal(one, other));
}

void record_queue_pause_topics(struct record_queue *queue, const char *topics)
{
	json_t *before = queue->paused, *now = NULL;
	const char *name;
	json_t *since;

	if (same_topics(topics, queue->paused_text))
		return;
	if (topics)
		now = json_loads(topics, 0, NULL);
	if (topics && !json_is_object(now)) { /* the server may send anything */
		json_decref(now);
		return;
	}

	free(queue->paused_text);
	queue->paused_text = topics ? xstrdup(topics) : NULL;
	queue->paused = now;
	json_object_foreach(before, name, since)
	{
		if (!json_object_get(now, name))
			resume_topic(queue, name);
	}
	json_object_foreach(now, name, since)
	{
		pause_topic(queue, name);
	}
	json_decref(before);
}

int record_queue_paused_topics(const struct record_queue *queue)
{
	return (int)json_object_size(queue->paused);
}

bool record_queue_pause_parks(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence)
{
	return partition->topic->paused && !partition_is_barred(partition) &&
	       partition->under_way + partition->written == 0 &&
	       record_queue_tail_lets(queue, partition, sequence);
}

void record_queue_pauses_forget(struct record_queue *queue)
{
	free(queue->paused_text);
	json_decref(queue->paused);
	queue->paused_text = NULL;
	queue->paused = NULL;
}
