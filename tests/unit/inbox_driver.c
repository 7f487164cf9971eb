/*
 * inbox_driver NAME=VALUE...: a consumer for a test that is written in Python. Names are those of
 * struct outbox_inbox_settings, and
 *
 *   kafka.PROPERTY  of librdkafka
 *   effects=FILE    each effect is a line at its end: "pid topic partition offset attempt id key
 *                   payload"; "-" for what is none
 *   dsn=...         or a row of the table effect (id, key, payload, partition); with take in the
 *                   same transaction as the id
 *   spans=1         with dsn: a row of the table span (id, token, pid, began, ended) when the
 *                   handler begins, which is completed at its end. The table target (id, token)
 *                   refuses tokens below the largest one: such a message is finished as "wait"
 *   delay=MS        handlers take that long at most, by chance
 *   noop=1          handlers do nothing and have no effect
 *
 * What a payload says is done: words "retry=N" (the first N tries fail), "wait=MS" (once), "dead",
 * "slow=MS", "never", "twice" (finished two times), "foreign" (as well as a ticket of nobody),
 * "later" (by another thread), "copy" (the application had it).
 *
 * Commands: "stats" answers with name=value ..., "pause TOPIC" and "resume TOPIC" ("" all),
 * "works", "refused": what outbox_inbox_finish refused so far. The end of the input closes it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inbox.h"

enum { MOST = 64 };

static const char *const kinds[] = {"retry", "reject", "config", "denied", "fenced", "fatal"};
static const char *kafka[2 * MOST + 1], *topics[MOST], *rules[MOST];
static struct outbox_inbox_retry_topic retries[MOST];
static struct outbox_inbox_settings settings = {
    .kafka = kafka, .topics = topics, .rules = rules, .retry_topics = retries};
static const char *dsn;
static int effects = -1, delay;
static bool noop, spans;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char refused[4096];

/* --- settings ------------------------------------------------------------------------------- */

static char *copy_text(const char *text)
{
	char *copy = strdup(text);
	if (!copy)
		abort();
	return copy;
}

static void split(char *list, const char **ret_items)
{
	char *rest;
	for (char *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest))
		*ret_items++ = copy_text(item);
}

static void split_retries(char *list)
{
	const char *items[MOST] = {NULL};
	split(list, items);
	for (int i = 0; items[i]; i++) {
		char *topic = (char *)items[i], *at = strchr(topic, '=');
		*at = '\0';
		retries[i] = (struct outbox_inbox_retry_topic){topic, strtoll(at + 1, NULL, 10)};
	}
}

static const struct number {
	const char *name;
	int *number;
	int64_t *wide;
} numbers[] = {
    {"concurrency", &settings.concurrency, NULL},
    {"batch", &settings.batch, NULL},
    {"threads", &settings.threads, NULL},
    {"attempts", &settings.attempts, NULL},
    {"start", (int *)&settings.start, NULL},
    {"without_id", (int *)&settings.without_id, NULL},
    {"delay", &delay, NULL},
    {"most_messages", NULL, &settings.most_messages},
    {"most_bytes", NULL, &settings.most_bytes},
    {"commit_every_ms", NULL, &settings.commit_every_ms},
    {"drain_ms", NULL, &settings.drain_ms},
    {"retry_first_ms", NULL, &settings.retry_first_ms},
    {"retry_most_ms", NULL, &settings.retry_most_ms},
};
static const struct string {
	const char *name;
	const char **text;
} strings[] = {{"group", &settings.group}, {"dedup", &settings.dedup}, {"claims", &settings.claims},
    {"report", &settings.report}, {"path", &settings.path}, {"id", &settings.id},
    {"dead_letters", &settings.dead_letters}, {"dsn", &dsn}, {"rules_store", &settings.rules_store},
    {"user", &settings.user}, {"content", &settings.content}, {"channel", &settings.channel},
    {"zone", &settings.zone}};

static void add(const char **list, const char *item)
{
	while (*list)
		list++;
	*list = copy_text(item);
}

static void set(const char *name, char *value)
{
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (strcmp(numbers[i].name, name) == 0) {
			if (numbers[i].wide)
				*numbers[i].wide = strtoll(value, NULL, 10);
			else
				*numbers[i].number = (int)strtol(value, NULL, 10);
			return;
		}
	for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
		if (strcmp(strings[i].name, name) == 0)
			*strings[i].text = copy_text(value);
	if (strcmp(name, "topics") == 0)
		split(value, topics);
	else if (strcmp(name, "retry_topics") == 0)
		split_retries(value);
	else if (strcmp(name, "rule") == 0)
		add(rules, value);
	else if (strcmp(name, "take") == 0)
		settings.take = true;
	else if (strcmp(name, "noop") == 0)
		noop = true;
	else if (strcmp(name, "spans") == 0)
		spans = true;
	else if (strcmp(name, "effects") == 0)
		effects = open(value, O_WRONLY | O_CREAT | O_APPEND, 0600);
	else if (strncmp(name, "kafka.", 6) == 0) {
		add(kafka, name + 6);
		add(kafka, value);
	}
}

/* --- effects -------------------------------------------------------------------------------- */

static int shown(size_t length)
{
	return length < 400 ? (int)length : 400;
}

static void write_effect(const struct outbox_inbox_message *message)
{
	char line[2048];
	int length = snprintf(line, sizeof line,
	    "%d %s %" PRId32 " %" PRId64 " %d %.*s %.*s %.*s\n", (int)getpid(), message->topic,
	    message->partition, message->offset, message->attempt,
	    message->id ? shown(message->id_length) : 1, message->id ? (char *)message->id : "-",
	    message->key ? shown(message->key_length) : 1,
	    message->key ? (char *)message->key : "-", shown(message->payload_length),
	    message->payload ? (char *)message->payload : "");
	if (write(effects, line, (size_t)length) != length)
		abort();
}

static bool run(PGconn *connection, const char *statement)
{
	PGresult *result = PQexec(connection, statement);
	bool well = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return well;
}

static bool insert(PGconn *connection, const struct outbox_inbox_message *message)
{
	char partition[16];
	snprintf(partition, sizeof partition, "%" PRId32, message->partition);
	const char *values[] = {message->id, message->key, message->payload, partition};
	const int lengths[] = {
	    (int)message->id_length, (int)message->key_length, (int)message->payload_length, 0};
	const int formats[] = {1, 1, 1, 0};
	PGresult *result = PQexecParams(connection,
	    "insert into effect (id, key, payload, partition) values (convert_from($1, 'UTF8'), "
	    "convert_from($2, 'UTF8'), convert_from($3, 'UTF8'), $4::integer)",
	    4, (const Oid[]){17, 17, 17, 23}, values, lengths, formats, 0);
	bool well = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return well;
}

static enum outbox_inbox_result effect_in_transaction(
    PGconn *connection, struct outbox_inbox *inbox, const struct outbox_inbox_message *message)
{
	enum outbox_dedup_state state = OUTBOX_DEDUP_NEW;
	struct outbox_error error;
	bool well = run(connection, "begin") &&
		    (!settings.take || outbox_inbox_take(inbox, (struct pg_conn *)connection,
					   &message, 1, &state, &error)) &&
		    (state != OUTBOX_DEDUP_NEW || insert(connection, message)) &&
		    run(connection, "commit");
	if (!well)
		return OUTBOX_INBOX_RETRY;
	return state == OUTBOX_DEDUP_NEW ? OUTBOX_INBOX_DONE : OUTBOX_INBOX_DUPLICATE;
}

static pthread_key_t connections;

static void disconnect(void *connection)
{
	PQfinish(connection);
}

/* A connection a thread. */
static PGconn *connect_to_database(void)
{
	PGconn *connection = pthread_getspecific(connections);
	if (!connection) {
		connection = PQconnectdb(dsn);
		pthread_setspecific(connections, connection);
	} else if (PQstatus(connection) != CONNECTION_OK)
		PQreset(connection);
	return connection;
}

/* Executes a statement about the message's id and token, and returns the number of its rows. */
static int change_span(const struct outbox_inbox_message *message, const char *statement)
{
	char token[24], pid[16];
	snprintf(token, sizeof token, "%" PRId64, message->token);
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	const char *values[] = {message->id, token, pid};
	const int lengths[] = {(int)message->id_length, 0, 0}, formats[] = {1, 0, 0};
	PGresult *result = PQexecParams(connect_to_database(), statement, 3,
	    (const Oid[]){17, 20, 23}, values, lengths, formats, 0);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fprintf(stderr, "%s", PQresultErrorMessage(result));
	int rows = (int)strtol(PQcmdTuples(result), NULL, 10);
	PQclear(result);
	return rows;
}

/* False: the target has seen a larger token. */
static bool begin_span(const struct outbox_inbox_message *message)
{
	return change_span(message,
		   "with mine as (insert into target as t (id, token) values "
		   "(convert_from($1, 'UTF8'), $2) on conflict (id) do update "
		   "set token = excluded.token where t.token < excluded.token returning t.id) "
		   "insert into span (id, token, pid, began) "
		   "select id, $2, $3, clock_timestamp() from mine") == 1;
}

static bool end_span(const struct outbox_inbox_message *message)
{
	return change_span(message,
		   "with mine as (select id from target where id = convert_from($1, 'UTF8') "
		   "and token = $2 and $3 > 0 for update) "
		   "update span set ended = clock_timestamp() "
		   "from mine where span.id = mine.id and span.token = $2") == 1;
}

static enum outbox_inbox_result have_effect(
    struct outbox_inbox *inbox, const struct outbox_inbox_message *message)
{
	if (spans)
		return end_span(message) ? OUTBOX_INBOX_DONE : OUTBOX_INBOX_WAIT;
	if (!dsn) {
		write_effect(message);
		return OUTBOX_INBOX_DONE;
	}
	PGconn *connection = connect_to_database();
	enum outbox_inbox_result result = effect_in_transaction(connection, inbox, message);
	if (result == OUTBOX_INBOX_RETRY && PQtransactionStatus(connection) != PQTRANS_IDLE)
		run(connection, "rollback");
	return result;
}

/* --- what payloads say ---------------------------------------------------------------------- */

static void rest(int64_t ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* What stands behind the word; -1: it is not there. */
static int64_t said(const struct outbox_inbox_message *message, const char *word)
{
	char text[500];
	size_t length =
	    message->payload_length < sizeof text - 1 ? message->payload_length : sizeof text - 1;
	if (message->payload)
		memcpy(text, message->payload, length);
	text[message->payload ? length : 0] = '\0';
	char *rest;
	for (char *at = strtok_r(text, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
		size_t size = strcspn(at, "=");
		if (strlen(word) == size && strncmp(at, word, size) == 0)
			return at[size] ? strtoll(at + size + 1, NULL, 10) : 0;
	}
	return -1;
}

static void finish(struct outbox_inbox *inbox, const struct outbox_inbox_end *end)
{
	struct outbox_error error;
	if (outbox_inbox_finish(inbox, end, 1, &error))
		return;
	pthread_mutex_lock(&mutex);
	snprintf(refused + strlen(refused), sizeof refused - strlen(refused), "%s: %s; ",
	    kinds[error.kind], error.message);
	pthread_mutex_unlock(&mutex);
}

struct later {
	struct outbox_inbox *inbox;
	struct outbox_inbox_end end;
};

static void *finish_later(void *context)
{
	struct later *later = context;
	rest(20);
	finish(later->inbox, &later->end);
	free(later);
	return NULL;
}

static void hand_over(struct outbox_inbox *inbox, const struct outbox_inbox_end *end)
{
	struct later *later = malloc(sizeof *later);
	pthread_t thread;
	*later = (struct later){inbox, *end};
	if (pthread_create(&thread, NULL, finish_later, later) != 0)
		abort();
	pthread_detach(thread);
}

static struct outbox_inbox_end handle_one(
    struct outbox_inbox *inbox, const struct outbox_inbox_message *message)
{
	struct outbox_inbox_end end = {message->ticket, OUTBOX_INBOX_DONE, NULL, 0};
	int64_t wait = said(message, "wait"), slow = said(message, "slow");
	static __thread unsigned seed;
	if (!seed)
		seed = (unsigned)(uintptr_t)&seed ^ (unsigned)getpid();
	if (spans && !begin_span(message)) {
		end.result = OUTBOX_INBOX_WAIT;
		return end;
	}
	if (slow > 0)
		rest(slow);
	if (delay)
		rest(rand_r(&seed) % delay);
	if (said(message, "dead") >= 0) {
		end.result = OUTBOX_INBOX_DEAD;
		end.reason = "the payload says dead";
	} else if (message->attempt <= said(message, "retry")) {
		end.result = OUTBOX_INBOX_RETRY;
		end.reason = "the payload says retry";
	} else if (said(message, "copy") >= 0)
		end.result = OUTBOX_INBOX_DUPLICATE;
	else if (wait > 0) {
		static _Atomic int waits;
		if (waits++ == 0) {
			end.result = OUTBOX_INBOX_WAIT;
			end.after_ms = wait;
		}
	}
	if (end.result == OUTBOX_INBOX_DONE)
		end.result = have_effect(inbox, message);
	return end;
}

static void handle(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	(void)context;
	if (noop) {
		struct outbox_inbox_end ends[1000];
		for (size_t i = 0; i < count; i++)
			ends[i] = (struct outbox_inbox_end){messages[i]->ticket};
		outbox_inbox_finish(inbox, ends, count, NULL);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		bool twice = said(messages[i], "twice") >= 0,
		     later = said(messages[i], "later") >= 0;
		bool foreign = said(messages[i], "foreign") >= 0;
		if (said(messages[i], "never") >= 0)
			continue;
		const struct outbox_inbox_end end = handle_one(inbox, messages[i]);
		if (foreign)
			finish(inbox, &(struct outbox_inbox_end){12345});
		if (later)
			hand_over(inbox, &end);
		else
			finish(inbox, &end);
		if (twice)
			finish(inbox, &end);
	}
}

/* --- commands ------------------------------------------------------------------------------- */

static void print_stats(struct outbox_inbox *inbox)
{
	struct outbox_inbox_stats s;
	outbox_inbox_stats(inbox, &s);
	printf("partitions=%d blocked=%d messages=%" PRIu64 " bytes=%" PRIu64
	       " in_progress=%" PRIu64 " oldest_ms=%" PRId64 " paused=%d handled=%" PRIu64
	       " duplicates=%" PRIu64 " refused=%" PRIu64 " retries=%" PRIu64
	       " retry_records=%" PRIu64 " dead_letters=%" PRIu64 " rebalances=%" PRIu64
	       " abandoned=%" PRIu64 " commits=%" PRIu64 " failed_commits=%" PRIu64
	       " filter_hits=%" PRIu64 " false_hits=%" PRIu64 " dedup_memory_bytes=%" PRIu64
	       " dedup_disk_bytes=%" PRIu64 " dedup_alarms=%d dedup_alarms_total=%" PRIu64
	       " claims_refused=%" PRIu64 " claims_lost=%" PRIu64 " reported=%" PRIu64
	       " unreported=%" PRIu64 "\n",
	    s.partitions, s.blocked, s.messages, s.bytes, s.in_progress, s.oldest_ms, s.paused,
	    s.handled, s.duplicates, s.refused, s.retries, s.retry_records, s.dead_letters,
	    s.rebalances, s.abandoned, s.commits, s.failed_commits, s.filter_hits, s.false_hits,
	    s.dedup_memory_bytes, s.dedup_disk_bytes, s.dedup_alarms, s.dedup_alarms_total,
	    s.claims_refused, s.claims_lost, s.reported, s.unreported);
}

static void obey(struct outbox_inbox *inbox, const char *command, const char *word)
{
	struct outbox_error error;
	if (strcmp(command, "stats") == 0)
		print_stats(inbox);
	else if (strcmp(command, "works") == 0 && !outbox_inbox_works(inbox, &error))
		printf("error %s %s\n", kinds[error.kind], error.message);
	else if (strcmp(command, "refused") == 0) {
		pthread_mutex_lock(&mutex);
		printf("refused %s\n", refused);
		pthread_mutex_unlock(&mutex);
	} else {
		if (strcmp(command, "pause") == 0 || strcmp(command, "resume") == 0)
			outbox_inbox_pause(inbox, word, command[0] == 'p');
		puts("ok");
	}
}

int main(int count, char **arguments)
{
	struct outbox_error error;
	char *line = NULL, *rest_of_line;
	size_t capacity = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	settings.handle = handle;
	pthread_key_create(&connections, disconnect);
	for (int i = 1; i < count; i++) {
		char *value = strchr(arguments[i], '=');
		*value = '\0';
		set(arguments[i], value + 1);
	}
	struct outbox_inbox *inbox = outbox_inbox_open(&settings, &error);
	if (inbox)
		puts("open");
	else
		printf("error %s %s\n", kinds[error.kind], error.message);
	while (inbox && getline(&line, &capacity, stdin) > 0) {
		const char *command = strtok_r(line, " \n", &rest_of_line);
		obey(inbox, command ? command : "", strtok_r(NULL, " \n", &rest_of_line));
	}
	free(line);
	outbox_inbox_close(inbox);
	return 0;
}
