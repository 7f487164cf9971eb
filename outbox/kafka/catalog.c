#include "catalog_private.h"

#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <stdatomic.h>
#include <uthash.h>
#include <utlist.h>

#include "cleanup.h"
#include "clock.h"
#include "kafka_client.h"
#include "kafka_conf.h"

/*
 * Thousands of topics may be looked at each second. So the entry that is due next is the first of a
 * list, and many that are due are asked for with one request.
 *
 * librdkafka keeps what it learns of a topic, some kilobytes for each partition, until its client
 * ends. So the client is made anew after so many topics: who asks with it holds `client`.
 */
enum {
	ASK_AGAIN_MS = 1000, /* after a missing topic or no answer */
	ANSWER_MS = 2000,    /* how long a background question may take */
	CLOSE_MS = 2000,
	FORGET_MS = 60000,   /* an entry that nobody looks at */
	BATCH = 200,         /* topics of one request */
	CLIENT_TOPICS = 600, /* asked for with one client */
};

/* One topic; guarded by the catalog's mutex. Only the thread frees entries. */
struct entry {
	struct catalog_topic known;
	int64_t asked_ms;          /* when the last answer, or its absence, came; 0: never */
	int64_t looked_ms;         /* somebody looked at it */
	struct entry *prev, *next; /* of `wanted` or `failed` */
	struct entry *prev_looked, *next_looked; /* of `looked` */
	enum { AT_REST, WANTED, FAILED } list;
	UT_hash_handle hh;
	char name[];
};

struct catalog {
	const struct config_kafka *kafka;
	pthread_rwlock_t client; /* write: the handle is exchanged */
	rd_kafka_t *handle;
	atomic_int asked; /* topics that the handle has heard of */
	pthread_t thread;
	bool started;
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* something is wanted, or stop */
	/* under the mutex */
	bool stop;
	struct entry *entries;
	struct entry *wanted; /* a caller found them too old */
	struct entry *failed; /* without an answer, or missing; the first was asked for first */
	struct entry *looked; /* all; the first was looked at longest ago */
	int *watchers;
	int watcher_count;
};

/* Without an answer the last known state stands, with the reason. */
static struct catalog_topic judge(
    struct catalog_topic known, rd_kafka_resp_err_t code, int partitions)
{
	memset(known.error, 0, sizeof known.error);
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
		known.state = TOPIC_THERE;
		known.partitions = partitions;
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

static void list_entry(struct catalog *catalog, struct entry *entry, int list)
{
	if (entry->list == WANTED)
		DL_DELETE(catalog->wanted, entry);
	else if (entry->list == FAILED)
		DL_DELETE(catalog->failed, entry);
	entry->list = list;
	if (list == WANTED)
		DL_APPEND(catalog->wanted, entry);
	else if (list == FAILED)
		DL_APPEND(catalog->failed, entry);
}

/* When the thread has something to do; INT64_MAX: not before somebody looks again. */
static int64_t due_ms(const struct catalog *catalog)
{
	int64_t due = INT64_MAX;

	if (catalog->wanted)
		return 0;
	if (catalog->failed)
		due = catalog->failed->asked_ms + ASK_AGAIN_MS;
	if (catalog->looked && catalog->looked->looked_ms + FORGET_MS < due)
		due = catalog->looked->looked_ms + FORGET_MS;
	return due;
}

static void forget_entry(struct catalog *catalog, struct entry *entry)
{
	list_entry(catalog, entry, AT_REST);
	DL_DELETE2(catalog->looked, entry, prev_looked, next_looked);
	HASH_DEL(catalog->entries, entry);
	free(entry);
}

static void forget_unlooked(struct catalog *catalog, int64_t now)
{
	while (catalog->looked && now - catalog->looked->looked_ms >= FORGET_MS)
		forget_entry(catalog, catalog->looked);
}

/* Removes the topics that are due from their list; returns their number. */
static int take_due(struct catalog *catalog, int64_t now, struct entry *due[BATCH])
{
	int count = 0;

	while (count < BATCH && catalog->wanted) {
		due[count++] = catalog->wanted;
		list_entry(catalog, catalog->wanted, AT_REST);
	}
	while (
	    count < BATCH && catalog->failed && catalog->failed->asked_ms + ASK_AGAIN_MS <= now) {
		due[count++] = catalog->failed;
		list_entry(catalog, catalog->failed, AT_REST);
	}
	return count;
}

static void tell_watchers(struct catalog *catalog)
{
	for (int i = 0; i < catalog->watcher_count; i++)
		/* Fails only when the counter is full, and then the fd is readable all the same. */
		if (eventfd_write(catalog->watchers[i], 1) != 0)
			continue;
}

/* Called with the mutex held. */
static bool take_answer(
    struct catalog *catalog, struct entry *entry, rd_kafka_resp_err_t code, int partitions)
{
	struct catalog_topic before = entry->known;

	entry->asked_ms = clock_ms();
	entry->known = judge(before, code, partitions);
	if (entry->known.error[0] != '\0')
		list_entry(catalog, entry, FAILED);
	else if (entry->list == FAILED)
		list_entry(catalog, entry, AT_REST);
	return !is_same(&before, &entry->known);
}

/* The answer also names what was asked for before with this client. */
static bool take_answers(
    struct catalog *catalog, const struct rd_kafka_metadata *metadata, int64_t begun)
{
	bool changed = false;

	for (int i = 0; i < metadata->topic_cnt; i++) {
		const struct rd_kafka_metadata_topic *topic = &metadata->topics[i];
		struct entry *entry;

		HASH_FIND_STR(catalog->entries, topic->topic, entry);
		if (entry && entry->asked_ms < begun)
			changed |= take_answer(catalog, entry, topic->err, topic->partition_cnt);
	}
	return changed;
}

/* Called with the mutex held; lets it go while it asks. */
static void ask(struct catalog *catalog, struct entry *const due[], int count)
{
	OWNED(kafka_client_free_metadata) const struct rd_kafka_metadata *metadata = NULL;
	const char *names[BATCH];
	int64_t begun = clock_ms();
	bool changed;

	for (int i = 0; i < count; i++)
		names[i] = due[i]->name;
	pthread_mutex_unlock(&catalog->mutex);
	rd_kafka_resp_err_t code =
	    kafka_client_topics(catalog->handle, names, count, ANSWER_MS, &metadata);
	atomic_fetch_add(&catalog->asked, count);
	pthread_mutex_lock(&catalog->mutex);
	changed = metadata && take_answers(catalog, metadata, begun);
	/* a topic that the answer to many does not name is not known to be missing */
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		code = count > 1 ? RD_KAFKA_RESP_ERR__PARTIAL : RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
	for (int i = 0; i < count; i++)
		if (due[i]->asked_ms < begun)
			changed |= take_answer(catalog, due[i], code, 0);
	if (changed)
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

/* The kind of client with no delivery reports to serve; without group.id it joins nothing. */
static rd_kafka_t *open_client(const struct config_kafka *kafka, struct err *err)
{
	return kafka_client_open(RD_KAFKA_CONSUMER, kafka_conf_client(kafka, err), kafka, err);
}

static void exchange_client(struct catalog *catalog)
{
	struct err err;
	rd_kafka_t *old = catalog->handle, *fresh = open_client(catalog->kafka, &err);

	if (!fresh)
		return; /* the old one goes on */
	pthread_rwlock_wrlock(&catalog->client);
	catalog->handle = fresh;
	atomic_store(&catalog->asked, 0);
	pthread_rwlock_unlock(&catalog->client);
	kafka_client_close(old, 0);
}

static void *run(void *argument)
{
	struct catalog *catalog = argument;

	pthread_mutex_lock(&catalog->mutex);
	while (!catalog->stop) {
		struct entry *due[BATCH];
		int count = take_due(catalog, clock_ms(), due);

		if (atomic_load(&catalog->asked) >= CLIENT_TOPICS) {
			pthread_mutex_unlock(&catalog->mutex);
			exchange_client(catalog);
			pthread_mutex_lock(&catalog->mutex);
		}
		if (count)
			ask(catalog, due, count);
		else
			wait_until(catalog, due_ms(catalog));
		forget_unlooked(catalog, clock_ms());
	}
	pthread_mutex_unlock(&catalog->mutex);
	return NULL;
}

static void init_locks(struct catalog *catalog)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&catalog->mutex, NULL);
	pthread_rwlock_init(&catalog->client, NULL);
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
	catalog->kafka = kafka;
	catalog->handle = open_client(kafka, err);
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
	if (!catalog)
		return;
	if (catalog->started)
		stop_thread(catalog);
	kafka_client_close(catalog->handle, CLOSE_MS);
	while (catalog->looked)
		forget_entry(catalog, catalog->looked);
	pthread_rwlock_destroy(&catalog->client);
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
	DL_APPEND2(catalog->looked, entry, prev_looked, next_looked);
	return entry;
}

struct catalog_topic catalog_look(struct catalog *catalog, const char *topic, int64_t max_age_ms)
{
	struct catalog_topic known;
	struct entry *entry;

	pthread_mutex_lock(&catalog->mutex);
	entry = entry_of(catalog, topic);
	entry->looked_ms = clock_ms();
	DL_DELETE2(catalog->looked, entry, prev_looked, next_looked);
	DL_APPEND2(catalog->looked, entry, prev_looked, next_looked);
	if (entry->list == AT_REST &&
	    (entry->asked_ms == 0 || entry->looked_ms - entry->asked_ms > max_age_ms)) {
		list_entry(catalog, entry, WANTED);
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

struct catalog *catalog_borrow(struct catalog *catalog, int topics)
{
	pthread_rwlock_rdlock(&catalog->client);
	atomic_fetch_add(&catalog->asked, topics);
	return catalog;
}

void catalog_return(struct catalog **catalog)
{
	pthread_rwlock_unlock(&(*catalog)->client);
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
