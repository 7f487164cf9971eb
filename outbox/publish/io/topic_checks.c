#include "topic_checks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uthash.h>
#include "clock.h"
#include "logging.h"
#include "preflight.h"
#include "text.h"

/*
 * One thread checks the entry that is most due (run_topic_checks), without the mutex while it asks,
 * and notes the answer (note_findings). topic_checks_allow, called by the shard workers, only looks
 * at the entry, and adds it at the first call.
 */

enum {
	ASK_MS = 3000,   /* maximum time of a check */
	AGAIN_MS = 1000, /* doubled after each check without an answer or without a topic */
	AGAIN_MOST_MS = 60000,
	AGAIN_UNSAFE_MS = 30000,
};

/* Protected by the mutex; entries live as long as the checks. */
struct entry {
	char *topic;
	bool strict;    /* some publisher to it has safety = strict */
	bool safe;      /* result of the last answer */
	bool missing;   /* in the last answer: there is nothing to check yet */
	char *why;      /* the first unsafe finding; NULL: no answer yet, or all is safe */
	int64_t due_ms; /* when to check; INT64_MAX: never again */
	int64_t again_ms;
	UT_hash_handle hh;
};

struct topic_checks {
	struct topic_metadata *metadata;
	const struct kafka_settings *kafka;
	pthread_t thread;
	bool started;
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* an entry is new or due earlier, or stop is set */
	/* protected by the mutex */
	bool stop;
	struct entry **entries;
	struct entry *by_topic;
	int count;
};

static const struct preflight_finding *first_unsafe(const struct preflight *report)
{
	for (int i = 0; i < report->count; i++)
		if (report->findings[i].severity >= PREFLIGHT_UNSAFE)
			return &report->findings[i];
	return NULL;
}

static void put_off_check(struct entry *entry)
{
	int64_t doubled = entry->again_ms > 0 ? 2 * entry->again_ms : AGAIN_MS;

	entry->again_ms = doubled < AGAIN_MOST_MS ? doubled : AGAIN_MOST_MS;
	entry->due_ms = clock_ms() + entry->again_ms;
}

static void settle_check(struct entry *entry)
{
	entry->again_ms = 0;
	entry->due_ms = !entry->safe && entry->strict ? clock_ms() + AGAIN_UNSAFE_MS : INT64_MAX;
}

/* Notes an answer; does not log the same findings again. */
static void note_findings(struct entry *entry, const struct preflight *report)
{
	const struct preflight_finding *unsafe = first_unsafe(report);
	bool known = unsafe && text_equal(unsafe->what, entry->why);

	free(entry->why);
	entry->safe = !unsafe;
	entry->missing = unsafe && unsafe->severity == PREFLIGHT_FAIL;
	entry->why = unsafe ? xstrdup(unsafe->what) : NULL;
	if (entry->missing)
		put_off_check(entry);
	else
		settle_check(entry);

	if (known)
		return;
	preflight_log(report);
	if (unsafe && entry->strict)
		log_error("topic_closed", {"topic", LOG_TEXT(entry->topic)},
		    {"error", LOG_TEXT(unsafe->what)}, {"cure", LOG_TEXT(unsafe->cure)},
		    {"consequence",
			LOG_TEXT("safety = strict: its rows wait until the topic is safe")});
}

/* Called with the mutex held; releases it while it asks. */
static void check_entry_topic(struct topic_checks *checks, struct entry *entry)
{
	OWNED(preflight_finish) struct preflight report = {0};
	struct err err;
	bool answered;

	pthread_mutex_unlock(&checks->mutex);
	answered = preflight_topic(
	    &report, checks->metadata, checks->kafka, entry->topic, 0, ASK_MS, &err);
	pthread_mutex_lock(&checks->mutex);
	if (answered)
		note_findings(entry, &report);
	else
		put_off_check(entry);
}

static struct entry *most_due_check(const struct topic_checks *checks)
{
	struct entry *most = NULL;

	for (int i = 0; i < checks->count; i++)
		if (checks->entries[i]->due_ms < (most ? most->due_ms : INT64_MAX))
			most = checks->entries[i];
	return most;
}

static void wait_for_changes(struct topic_checks *checks, int64_t ms)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += (at.tv_nsec / 1000000 + ms) / 1000;
	at.tv_nsec = (at.tv_nsec / 1000000 + ms) % 1000 * 1000000;
	pthread_cond_timedwait(&checks->changed, &checks->mutex, &at);
}

static void *run_topic_checks(void *context)
{
	struct topic_checks *checks = context;

	pthread_mutex_lock(&checks->mutex);
	while (!checks->stop) {
		struct entry *entry = most_due_check(checks);
		int64_t now = clock_ms();

		if (!entry)
			pthread_cond_wait(&checks->changed, &checks->mutex);
		else if (entry->due_ms <= now)
			check_entry_topic(checks, entry);
		else
			wait_for_changes(checks, entry->due_ms - now);
	}
	pthread_mutex_unlock(&checks->mutex);
	return NULL;
}

static void init_checks_locks(struct topic_checks *checks)
{
	pthread_mutex_init(&checks->mutex, NULL);
	clock_cond_init(&checks->changed);
}

struct topic_checks *topic_checks_create(
    struct topic_metadata *metadata, const struct kafka_settings *kafka, struct err *err)
{
	struct topic_checks *checks = xcalloc(1, sizeof *checks);
	int error;

	checks->metadata = metadata;
	checks->kafka = kafka;
	init_checks_locks(checks);
	error = pthread_create(&checks->thread, NULL, run_topic_checks, checks);
	if (error == 0) {
		checks->started = true;
		return checks;
	}
	err_set(err, ERR_RETRY, "no thread for the checks of topics: %s", strerror(error));
	topic_checks_destroy(checks);
	return NULL;
}

static void stop_checks_thread(struct topic_checks *checks)
{
	pthread_mutex_lock(&checks->mutex);
	checks->stop = true;
	pthread_cond_signal(&checks->changed);
	pthread_mutex_unlock(&checks->mutex);
	pthread_join(checks->thread, NULL);
}

void topic_checks_destroy(struct topic_checks *checks)
{
	if (!checks)
		return;
	if (checks->started)
		stop_checks_thread(checks);

	HASH_CLEAR(hh, checks->by_topic);
	for (int i = 0; i < checks->count; i++) {
		free(checks->entries[i]->topic);
		free(checks->entries[i]->why);
		free(checks->entries[i]);
	}
	free(checks->entries);
	pthread_cond_destroy(&checks->changed);
	pthread_mutex_destroy(&checks->mutex);
	free(checks);
}

static struct entry *find_or_add_check(struct topic_checks *checks, const char *topic)
{
	struct entry *entry;

	HASH_FIND_STR(checks->by_topic, topic, entry);
	if (entry)
		return entry;
	entry = xcalloc(1, sizeof *entry);
	entry->topic = xstrdup(topic);
	checks->entries =
	    xrealloc(checks->entries, (size_t)(checks->count + 1) * sizeof *checks->entries);
	checks->entries[checks->count++] = entry;
	HASH_ADD_KEYPTR(hh, checks->by_topic, entry->topic, strlen(entry->topic), entry);
	pthread_cond_signal(&checks->changed);
	return entry;
}

/* A publisher with safety = strict needs an unsafe topic to be checked again from now on. */
static void mark_strict(struct topic_checks *checks, struct entry *entry)
{
	if (entry->strict)
		return;
	entry->strict = true;
	if (!entry->safe) {
		entry->due_ms = 0;
		pthread_cond_signal(&checks->changed);
	}
}

/* The caller may have seen that the missing topic exists now: checks it soon. */
static void look_soon(struct topic_checks *checks, struct entry *entry)
{
	int64_t soon = clock_ms() + AGAIN_MS;

	if (entry->due_ms <= soon)
		return;
	entry->due_ms = soon;
	pthread_cond_signal(&checks->changed);
}

bool topic_checks_allow(struct topic_checks *checks, const char *topic, enum safety safety)
{
	struct entry *entry;
	bool allowed;

	pthread_mutex_lock(&checks->mutex);
	entry = find_or_add_check(checks, topic);
	if (safety == SAFETY_STRICT)
		mark_strict(checks, entry);
	if (entry->missing)
		look_soon(checks, entry);
	allowed = safety != SAFETY_STRICT || entry->safe;
	pthread_mutex_unlock(&checks->mutex);
	return allowed;
}

int topic_checks_closed(struct topic_checks *checks, struct text *out)
{
	int closed = 0;

	pthread_mutex_lock(&checks->mutex);
	for (int i = 0; i < checks->count; i++) {
		const struct entry *entry = checks->entries[i];

		if (!entry->strict || entry->safe)
			continue;
		text_addf(out, "topic %s: %s\n", entry->topic,
		    entry->why ? entry->why : "not checked yet");
		closed++;
	}
	pthread_mutex_unlock(&checks->mutex);
	return closed;
}
