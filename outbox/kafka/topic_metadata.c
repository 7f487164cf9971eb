#include "topic_metadata_private.h"

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
#include "client_faults.h"
#include "client_files.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "text.h"

/*
 * Thousands of topics may be looked up each second. So the entry that is due next is the first of a
 * list, and one request covers many due entries.
 *
 * librdkafka keeps its knowledge of a topic, some kilobytes for each partition, until its client
 * ends. So the client is created anew after so many topics: a thread that uses it holds `client`.
 */
enum {
	ASK_AGAIN_MS = 1000, /* after a missing topic or no answer */
	ANSWER_MS = 2000,    /* how long a background request may take */
	CLOSE_MS = 2000,
	FORGET_MS = 60000,   /* an entry that nobody looks at */
	BATCH = 200,         /* topics of one request */
	CLIENT_TOPICS = 600, /* asked for with one client */
};

/* One topic; guarded by the mutex. Only the thread frees entries. */
struct entry {
	struct known_topic known;
	int64_t asked_ms;          /* when the last answer, or its absence, came; 0: never */
	int64_t looked_ms;         /* somebody looked at it */
	struct entry *prev, *next; /* of `wanted` or `failed` */
	struct entry *prev_looked, *next_looked; /* of `looked` */
	enum { AT_REST, WANTED, FAILED } list;
	UT_hash_handle hh;
	char name[];
};

struct topic_metadata {
	const struct kafka_settings *kafka;
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

/* Without an answer the last known state remains, with the reason. */
static struct known_topic judge_answer(
    struct known_topic known, rd_kafka_resp_err_t code, int partitions)
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

static bool is_same(const struct known_topic *a, const struct known_topic *b)
{
	return a->state == b->state && a->partitions == b->partitions &&
	       text_equal(a->error, b->error);
}

static void list_entry(struct topic_metadata *metadata, struct entry *entry, int list)
{
	if (entry->list == WANTED)
		DL_DELETE(metadata->wanted, entry);
	else if (entry->list == FAILED)
		DL_DELETE(metadata->failed, entry);
	entry->list = list;
	if (list == WANTED)
		DL_APPEND(metadata->wanted, entry);
	else if (list == FAILED)
		DL_APPEND(metadata->failed, entry);
}

/*
 * When the thread has something to do; INT64_MAX: not before somebody looks again. A client that
 * nobody uses connects now and then, too, so that one with an expired certificate would be refused.
 */
static int64_t due_ms(const struct topic_metadata *metadata)
{
	int64_t due = client_files_due(metadata->handle);

	if (metadata->wanted)
		return 0;
	if (metadata->failed && metadata->failed->asked_ms + ASK_AGAIN_MS < due)
		due = metadata->failed->asked_ms + ASK_AGAIN_MS;
	if (metadata->looked && metadata->looked->looked_ms + FORGET_MS < due)
		due = metadata->looked->looked_ms + FORGET_MS;
	return due;
}

static void forget_entry(struct topic_metadata *metadata, struct entry *entry)
{
	list_entry(metadata, entry, AT_REST);
	DL_DELETE2(metadata->looked, entry, prev_looked, next_looked);
	HASH_DEL(metadata->entries, entry);
	free(entry);
}

static void forget_unlooked(struct topic_metadata *metadata, int64_t now)
{
	while (metadata->looked && now - metadata->looked->looked_ms >= FORGET_MS)
		forget_entry(metadata, metadata->looked);
}

/* Removes the topics that are due from their list; returns their number. */
static int take_due(struct topic_metadata *metadata, int64_t now, struct entry *due[BATCH])
{
	int count = 0;

	/* Wanted topics first, since a caller asked for them just now. */
	while (count < BATCH && metadata->wanted) {
		due[count++] = metadata->wanted;
		list_entry(metadata, metadata->wanted, AT_REST);
	}
	while (
	    count < BATCH && metadata->failed && metadata->failed->asked_ms + ASK_AGAIN_MS <= now) {
		due[count++] = metadata->failed;
		list_entry(metadata, metadata->failed, AT_REST);
	}
	return count;
}

static void tell_watchers(struct topic_metadata *metadata)
{
	for (int i = 0; i < metadata->watcher_count; i++)
		/* Fails only when the counter is full, and then the fd is readable all the same. */
		if (eventfd_write(metadata->watchers[i], 1) != 0)
			continue;
}

/* Called with the mutex held. */
static bool take_topic_answer(
    struct topic_metadata *metadata, struct entry *entry, rd_kafka_resp_err_t code, int partitions)
{
	struct known_topic before = entry->known;

	entry->asked_ms = clock_ms();
	entry->known = judge_answer(before, code, partitions);
	if (entry->known.error[0] != '\0')
		list_entry(metadata, entry, FAILED);
	else if (entry->list == FAILED)
		list_entry(metadata, entry, AT_REST);
	return !is_same(&before, &entry->known);
}

/* The answer also names what was asked for before with this client. */
static bool take_topic_answers(
    struct topic_metadata *metadata, const struct rd_kafka_metadata *answer, int64_t begun)
{
	bool changed = false;

	for (int i = 0; i < answer->topic_cnt; i++) {
		const struct rd_kafka_metadata_topic *topic = &answer->topics[i];
		struct entry *entry;

		HASH_FIND_STR(metadata->entries, topic->topic, entry);
		if (entry && entry->asked_ms < begun)
			changed |=
			    take_topic_answer(metadata, entry, topic->err, topic->partition_cnt);
	}
	return changed;
}

/* Called with the mutex held; lets it go while it asks. */
static void ask_for_topics(struct topic_metadata *metadata, struct entry *const due[], int count)
{
	OWNED(kafka_client_free_metadata) const struct rd_kafka_metadata *answer = NULL;
	const char *names[BATCH];
	int64_t begun = clock_ms();
	bool changed;

	for (int i = 0; i < count; i++)
		names[i] = due[i]->name;
	pthread_mutex_unlock(&metadata->mutex);
	rd_kafka_resp_err_t code =
	    kafka_client_topics(metadata->handle, names, count, ANSWER_MS, &answer);
	atomic_fetch_add(&metadata->asked, count);
	pthread_mutex_lock(&metadata->mutex);
	changed = answer && take_topic_answers(metadata, answer, begun);
	/* a topic that the answer to many does not name is not known to be missing */
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		code = count > 1 ? RD_KAFKA_RESP_ERR__PARTIAL : RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
	for (int i = 0; i < count; i++)
		/* The topics that the answer named have a newer time. */
		if (due[i]->asked_ms < begun)
			changed |= take_topic_answer(metadata, due[i], code, 0);
	if (changed)
		tell_watchers(metadata);
}

static void wait_for_due_topic(struct topic_metadata *metadata, int64_t due)
{
	struct timespec at;
	int64_t wait_ms;

	if (due == INT64_MAX) {
		pthread_cond_wait(&metadata->changed, &metadata->mutex);
		return;
	}
	wait_ms = due - clock_ms();
	if (wait_ms <= 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += (at.tv_nsec / 1000000 + wait_ms) / 1000;
	at.tv_nsec = (at.tv_nsec / 1000000 + wait_ms) % 1000 * 1000000;
	pthread_cond_timedwait(&metadata->changed, &metadata->mutex, &at);
}

/* The kind of client with no delivery reports to serve; without group.id it joins nothing. */
static rd_kafka_t *open_metadata_client(const struct kafka_settings *kafka, struct err *err)
{
	return kafka_client_open(RD_KAFKA_CONSUMER, kafka_conf_client(kafka, err), kafka, err);
}

static void exchange_metadata_client(struct topic_metadata *metadata)
{
	struct err err;
	rd_kafka_t *old = metadata->handle, *fresh = open_metadata_client(metadata->kafka, &err);

	if (!fresh)
		return; /* the old one goes on */
	pthread_rwlock_wrlock(&metadata->client);
	metadata->handle = fresh;
	atomic_store(&metadata->asked, 0);
	pthread_rwlock_unlock(&metadata->client);
	kafka_client_close(old, 0);
}

static void *run_lookups(void *argument)
{
	struct topic_metadata *metadata = argument;

	pthread_mutex_lock(&metadata->mutex);
	while (!metadata->stop) {
		struct entry *due[BATCH];
		int count = take_due(metadata, clock_ms(), due);

		/*
		 * The exchange waits for borrowers, while topic_metadata_get must not wait. The
		 * entries in `due` stay valid without the mutex, because only this thread frees
		 * entries.
		 */
		if (atomic_load(&metadata->asked) >= CLIENT_TOPICS ||
		    client_files_is_stale(metadata->handle)) {
			pthread_mutex_unlock(&metadata->mutex);
			exchange_metadata_client(metadata);
			pthread_mutex_lock(&metadata->mutex);
		}
		if (count)
			ask_for_topics(metadata, due, count);
		else
			wait_for_due_topic(metadata, due_ms(metadata));
		forget_unlooked(metadata, clock_ms());
	}
	pthread_mutex_unlock(&metadata->mutex);
	return NULL;
}

static void init_metadata_locks(struct topic_metadata *metadata)
{
	pthread_mutex_init(&metadata->mutex, NULL);
	pthread_rwlock_init(&metadata->client, NULL);
	clock_cond_init(&metadata->changed);
}

struct topic_metadata *topic_metadata_create(const struct kafka_settings *kafka, struct err *err)
{
	struct topic_metadata *metadata = xcalloc(1, sizeof *metadata);
	int error;

	init_metadata_locks(metadata);
	metadata->kafka = kafka;
	metadata->handle = open_metadata_client(kafka, err);
	if (!metadata->handle)
		goto fail;
	error = pthread_create(&metadata->thread, NULL, run_lookups, metadata);
	if (error != 0) {
		err_set(err, ERR_RETRY, "no thread for the topic metadata of Kafka: %s",
		    strerror(error));
		goto fail;
	}
	metadata->started = true;
	return metadata;
fail:
	topic_metadata_destroy(metadata);
	return NULL;
}

static void stop_lookups(struct topic_metadata *metadata)
{
	pthread_mutex_lock(&metadata->mutex);
	metadata->stop = true;
	pthread_cond_signal(&metadata->changed);
	pthread_mutex_unlock(&metadata->mutex);
	pthread_join(metadata->thread, NULL);
}

void topic_metadata_destroy(struct topic_metadata *metadata)
{
	if (!metadata)
		return;

	if (metadata->started)
		stop_lookups(metadata);
	kafka_client_close(metadata->handle, CLOSE_MS);
	while (metadata->looked)
		forget_entry(metadata, metadata->looked);

	pthread_rwlock_destroy(&metadata->client);
	pthread_cond_destroy(&metadata->changed);
	pthread_mutex_destroy(&metadata->mutex);
	free(metadata->watchers);
	free(metadata);
}

static struct entry *find_or_add_entry(struct topic_metadata *metadata, const char *name)
{
	size_t length = strlen(name);
	struct entry *entry;

	HASH_FIND_STR(metadata->entries, name, entry);
	if (entry)
		return entry;
	entry = xcalloc(1, sizeof *entry + length + 1);
	memcpy(entry->name, name, length);
	HASH_ADD_STR(metadata->entries, name, entry);
	DL_APPEND2(metadata->looked, entry, prev_looked, next_looked);
	return entry;
}

struct known_topic topic_metadata_get(
    struct topic_metadata *metadata, const char *topic, int64_t max_age_ms)
{
	struct known_topic known;
	struct entry *entry;

	pthread_mutex_lock(&metadata->mutex);
	entry = find_or_add_entry(metadata, topic);
	entry->looked_ms = clock_ms();
	DL_DELETE2(metadata->looked, entry, prev_looked, next_looked);
	DL_APPEND2(metadata->looked, entry, prev_looked, next_looked);
	if (entry->list == AT_REST &&
	    (entry->asked_ms == 0 || entry->looked_ms - entry->asked_ms > max_age_ms)) {
		list_entry(metadata, entry, WANTED);
		pthread_cond_signal(&metadata->changed);
	}
	known = entry->known;
	pthread_mutex_unlock(&metadata->mutex);
	return known;
}

rd_kafka_t *topic_metadata_handle(const struct topic_metadata *metadata)
{
	return metadata->handle;
}

const char *topic_metadata_cure(struct topic_metadata *metadata, bool *ret_logged)
{
	OWNED(topic_metadata_return)
	struct topic_metadata *borrowed = topic_metadata_borrow(metadata, 0);
	struct connect_fault fault;

	if (!client_faults_get(borrowed->handle, &fault))
		return NULL;
	*ret_logged = fault.sure;
	return fault.cure;
}

struct topic_metadata *topic_metadata_borrow(struct topic_metadata *metadata, int topics)
{
	pthread_rwlock_rdlock(&metadata->client);
	atomic_fetch_add(&metadata->asked, topics);
	return metadata;
}

void topic_metadata_return(struct topic_metadata **metadata)
{
	pthread_rwlock_unlock(&(*metadata)->client);
}

void topic_metadata_watch(struct topic_metadata *metadata, int event_fd)
{
	pthread_mutex_lock(&metadata->mutex);
	metadata->watchers = xrealloc(
	    metadata->watchers, (size_t)(metadata->watcher_count + 1) * sizeof *metadata->watchers);
	metadata->watchers[metadata->watcher_count++] = event_fd;
	pthread_mutex_unlock(&metadata->mutex);
}

void topic_metadata_unwatch(struct topic_metadata *metadata, int event_fd)
{
	pthread_mutex_lock(&metadata->mutex);
	for (int i = 0; i < metadata->watcher_count; i++)
		if (metadata->watchers[i] == event_fd) {
			metadata->watchers[i] = metadata->watchers[--metadata->watcher_count];
			break;
		}
	pthread_mutex_unlock(&metadata->mutex);
}
