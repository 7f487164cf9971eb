#include "catalog_private.h"

#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <uthash.h>

#include "cleanup.h"
#include "clock.h"
#include "kafka_client.h"
#include "kafka_conf.h"

enum {
	ASK_AGAIN_MS = 1000, /* after a missing topic or no answer */
	ANSWER_MS = 2000,    /* how long a background question may take */
	CLOSE_MS = 2000,
};

/* What is known of one topic; under the catalog's mutex. Entries live as long as the catalog. */
struct entry {
	struct catalog_topic known;
	int64_t asked_ms; /* when the last answer, or its absence, came; 0: never */
	bool wanted;      /* a caller found it too old */
	UT_hash_handle hh;
	char name[];
};

struct catalog {
	rd_kafka_t *handle;
	pthread_t thread;
	bool started;
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* something is wanted, or stop */
	/* under the mutex */
	bool stop;
	struct entry *entries;
	int *watchers;
	int watcher_count;
};

/* Without an answer the last known state stands, with the reason. Blocks. */
static struct catalog_topic look_up(
    rd_kafka_t *handle, const char *name, struct catalog_topic known)
{
	OWNED(kafka_client_free_metadata) const struct rd_kafka_metadata *metadata = NULL;
	rd_kafka_resp_err_t code = kafka_client_topic(handle, name, ANSWER_MS, &metadata);

	memset(known.error, 0, sizeof known.error);
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
		known.state = TOPIC_THERE;
		known.partitions = metadata->topics[0].partition_cnt;
		known.answered_ms = clock_ms();
		return known;
	}
	if (kafka_client_is_missing(code)) {
		known.state = TOPIC_MISSING;
		known.partitions = 0;
		known.answered_ms = clock_ms();
	}
	snprintf(known.error, sizeof known.error, "%s (%s)", rd_kafka_err2str(code),
	    rd_kafka_err2name(code));
	return known;
}

static bool is_same(const struct catalog_topic *a, const struct catalog_topic *b)
{
	return a->state == b->state && a->partitions == b->partitions &&
	       text_equal(a->error, b->error);
}

/* When the entry is to be asked; INT64_MAX: not before somebody looks again. */
static int64_t due_ms(const struct entry *entry)
{
	if (entry->asked_ms == 0)
		return 0;
	if (entry->known.error[0] != '\0')
		return entry->asked_ms + ASK_AGAIN_MS;
	return entry->wanted ? 0 : INT64_MAX;
}

static struct entry *most_due(struct catalog *catalog, int64_t *ret_due_ms)
{
	struct entry *most = NULL;

	*ret_due_ms = INT64_MAX;
	for (struct entry *entry = catalog->entries; entry; entry = entry->hh.next)
		if (due_ms(entry) < *ret_due_ms) {
			most = entry;
			*ret_due_ms = due_ms(entry);
		}
	return most;
}

static void tell_watchers(struct catalog *catalog)
{
	for (int i = 0; i < catalog->watcher_count; i++)
		/* Fails only when the counter is full, and then the fd is readable all the same. */
		if (eventfd_write(catalog->watchers[i], 1) != 0)
			continue;
}

/* Called with the mutex held; lets it go while it asks. */
static void ask(struct catalog *catalog, struct entry *entry)
{
	struct catalog_topic before = entry->known, after;

	entry->wanted = false;
	pthread_mutex_unlock(&catalog->mutex);
	after = look_up(catalog->handle, entry->name, before);
	pthread_mutex_lock(&catalog->mutex);
	entry->asked_ms = clock_ms();
	entry->known = after;
	if (!is_same(&before, &after))
		tell_watchers(catalog);
}

static void wait_until(struct catalog *catalog, int64_t due)
{
	struct timespec at;
	int64_t wait_ms;

	if (due == INT64_MAX) {
		pthread_cond_wait(&catalog->changed, &catalog->mutex);
		return;
	}
	wait_ms = due - clock_ms();
	if (wait_ms <= 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += (at.tv_nsec / 1000000 + wait_ms) / 1000;
	at.tv_nsec = (at.tv_nsec / 1000000 + wait_ms) % 1000 * 1000000;
	pthread_cond_timedwait(&catalog->changed, &catalog->mutex, &at);
}

static void *run(void *argument)
{
	struct catalog *catalog = argument;

	pthread_mutex_lock(&catalog->mutex);
	while (!catalog->stop) {
		int64_t due;
		struct entry *entry = most_due(catalog, &due);

		if (entry && due <= clock_ms())
			ask(catalog, entry);
		else
			wait_until(catalog, due);
	}
	pthread_mutex_unlock(&catalog->mutex);
	return NULL;
}

static void init_locks(struct catalog *catalog)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&catalog->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&catalog->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

struct catalog *catalog_create(const struct config_kafka *kafka, struct err *err)
{
	struct catalog *catalog = xcalloc(1, sizeof *catalog);
	int error;

	init_locks(catalog);
	/* The kind of client with no delivery reports to serve; without group.id it joins nothing.
	 */
	catalog->handle =
	    kafka_client_open(RD_KAFKA_CONSUMER, kafka_conf_client(kafka, err), kafka, err);
	if (!catalog->handle)
		goto fail;
	error = pthread_create(&catalog->thread, NULL, run, catalog);
	if (error != 0) {
		err_set(err, ERR_RETRY, "no thread for the Kafka catalog: %s", strerror(error));
		goto fail;
	}
	catalog->started = true;
	return catalog;
fail:
	catalog_destroy(catalog);
	return NULL;
}

static void stop_thread(struct catalog *catalog)
{
	pthread_mutex_lock(&catalog->mutex);
	catalog->stop = true;
	pthread_cond_signal(&catalog->changed);
	pthread_mutex_unlock(&catalog->mutex);
	pthread_join(catalog->thread, NULL);
}

void catalog_destroy(struct catalog *catalog)
{
	struct entry *entry, *next;

	if (!catalog)
		return;
	if (catalog->started)
		stop_thread(catalog);
	kafka_client_close(catalog->handle, CLOSE_MS);
	HASH_ITER(hh, catalog->entries, entry, next)
	{
		HASH_DEL(catalog->entries, entry);
		free(entry);
	}
	pthread_cond_destroy(&catalog->changed);
	pthread_mutex_destroy(&catalog->mutex);
	free(catalog->watchers);
	free(catalog);
}

static struct entry *entry_of(struct catalog *catalog, const char *name)
{
	size_t length = strlen(name);
	struct entry *entry;

	HASH_FIND_STR(catalog->entries, name, entry);
	if (entry)
		return entry;
	entry = xcalloc(1, sizeof *entry + length + 1);
	memcpy(entry->name, name, length);
	HASH_ADD_STR(catalog->entries, name, entry);
	return entry;
}

struct catalog_topic catalog_look(struct catalog *catalog, const char *topic, int64_t max_age_ms)
{
	struct catalog_topic known;
	struct entry *entry;

	pthread_mutex_lock(&catalog->mutex);
	entry = entry_of(catalog, topic);
	if (entry->asked_ms == 0 || clock_ms() - entry->asked_ms > max_age_ms) {
		entry->wanted = true;
		pthread_cond_signal(&catalog->changed);
	}
	known = entry->known;
	pthread_mutex_unlock(&catalog->mutex);
	return known;
}

rd_kafka_t *catalog_handle(const struct catalog *catalog)
{
	return catalog->handle;
}

void catalog_watch(struct catalog *catalog, int event_fd)
{
	pthread_mutex_lock(&catalog->mutex);
	catalog->watchers = xrealloc(
	    catalog->watchers, (size_t)(catalog->watcher_count + 1) * sizeof *catalog->watchers);
	catalog->watchers[catalog->watcher_count++] = event_fd;
	pthread_mutex_unlock(&catalog->mutex);
}

void catalog_unwatch(struct catalog *catalog, int event_fd)
{
	pthread_mutex_lock(&catalog->mutex);
	for (int i = 0; i < catalog->watcher_count; i++)
		if (catalog->watchers[i] == event_fd) {
			catalog->watchers[i] = catalog->watchers[--catalog->watcher_count];
			break;
		}
	pthread_mutex_unlock(&catalog->mutex);
}
