#include "fetch_wake.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include "text.h"

enum { WAKE_MS = 50 };

struct fetch_wake {
	rd_kafka_t *handle;
	size_t most_records, most_bytes;
	size_t records, bytes; /* read since the fetchers were woken */
	bool runs;             /* the thread was started: only busy readers have one */
	pthread_t thread;

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	bool asked, over;
};

static void ask_leaders(rd_kafka_t *handle)
{
	rd_kafka_topic_partition_list_t *list;

	if (rd_kafka_assignment(handle, &list))
		return;
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = RD_KAFKA_OFFSET_END;
	rd_kafka_offsets_for_times(handle, list, WAKE_MS); /* whatever it says */
	rd_kafka_topic_partition_list_destroy(list);
}

static void *run_fetch_wake(void *context)
{
	struct fetch_wake *wake = context;

	pthread_setname_np(pthread_self(), "fetch-wake");
	pthread_mutex_lock(&wake->mutex);
	while (!wake->over) {
		if (!wake->asked) {
			pthread_cond_wait(&wake->changed, &wake->mutex);
			continue;
		}
		wake->asked = false;
		pthread_mutex_unlock(&wake->mutex);
		ask_leaders(wake->handle);
		pthread_mutex_lock(&wake->mutex);
	}
	pthread_mutex_unlock(&wake->mutex);
	return NULL;
}

static void order_question(struct fetch_wake *wake)
{
	if (!wake->runs)
		wake->runs = pthread_create(&wake->thread, NULL, run_fetch_wake, wake) == 0;
	/* without a thread the reader waits itself */
	if (!wake->runs) {
		ask_leaders(wake->handle);
		return;
	}

	pthread_mutex_lock(&wake->mutex);
	wake->asked = true;
	pthread_cond_signal(&wake->changed);
	pthread_mutex_unlock(&wake->mutex);
}

/* A queue that was full since the last question is half full once this many records were read. */
static size_t half_of_bounds(const struct fetch_wake *wake)
{
	size_t mean_bytes = wake->bytes / wake->records + 1;
	size_t most = wake->most_bytes / mean_bytes;

	return (most < wake->most_records ? most : wake->most_records) / 2;
}

void fetch_wake_note(struct fetch_wake *wake, size_t records, size_t bytes)
{
	wake->records += records;
	wake->bytes += bytes;
}

void fetch_wake_look(struct fetch_wake *wake, rd_kafka_queue_t *queue)
{
	size_t half;

	if (wake->records == 0)
		return;
	half = half_of_bounds(wake);
	if (wake->records < half || rd_kafka_queue_length(queue) > half)
		return;
	wake->records = wake->bytes = 0;
	order_question(wake);
}

struct fetch_wake *fetch_wake_create(rd_kafka_t *handle, size_t most_records, size_t most_bytes)
{
	struct fetch_wake *wake = xcalloc(1, sizeof *wake);

	wake->handle = handle;
	wake->most_records = most_records;
	wake->most_bytes = most_bytes;
	pthread_mutex_init(&wake->mutex, NULL);
	pthread_cond_init(&wake->changed, NULL);
	return wake;
}

void fetch_wake_destroy(struct fetch_wake *wake)
{
	if (!wake)
		return;

	pthread_mutex_lock(&wake->mutex);
	wake->over = true;
	pthread_cond_signal(&wake->changed);
	pthread_mutex_unlock(&wake->mutex);
	if (wake->runs)
		pthread_join(wake->thread, NULL);

	pthread_cond_destroy(&wake->changed);
	pthread_mutex_destroy(&wake->mutex);
	free(wake);
}
