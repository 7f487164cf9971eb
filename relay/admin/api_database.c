/*
 * One thread with one database session that answers the questions of the HTTP interface, and the
 * claims by which the process knows which prepares it has sent itself. Begin at run_api_database;
 * api_database_ask is the call of the verbs.
 */
#include "api_database.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/timerfd.h>
#include <uthash.h>
#include <utlist.h>
#include "cleanup.h"
#include "clock.h"
#include "schema_query.h"
#include "sql_files.h"
#include "text.h"

enum {
	MOST_WAITING = 256,
	CONNECT_MS = 5000,
	LOOK_MS = 10000,
	CLAIM_MS = 600000, /* how long a claim is kept; a reader that lags longer stores the first
			      prepare all the same */
	MOST_CLAIMS = 100000,
};

/* A prepare that this process sent, by the UUID of its id; the oldest comes first. */
struct claim {
	unsigned char id[UUID_BYTES], digest[LOOKBACK_DIGEST];
	int64_t until_ms;
	UT_hash_handle hh;
};

struct api_database {
	const struct postgres_settings *postgres;
	int limit_fd; /* a timer: the running question is cancelled when it is readable */
	pthread_t thread;
	struct pg *pg; /* for the thread only; NULL: not connected */
	pthread_mutex_t mutex;
	pthread_cond_t asked, looked;
	int64_t look_at; /* for the thread only: when it asks how long a payload may be */
	_Atomic int64_t payload_most; /* -1: not known */
	/* guarded by the mutex */
	bool has_looked;
	struct claim *claims;
	struct api_question *waiting;
	int count;
	bool ending;
};

void api_question_finish(struct api_question *question)
{
	for (int i = 0; i < API_QUESTION_PARAMS; i++)
		free(question->params[i]);
	free(question->json);
}

/* Does not set the timer again once the thread has to end. */
static void begin_limit(struct api_database *database, int64_t ms)
{
	pthread_mutex_lock(&database->mutex);
	if (!database->ending)
		pg_interrupt_in(database->limit_fd, ms);
	pthread_mutex_unlock(&database->mutex);
}

static bool connect_anew(struct api_database *database, struct err *err)
{
	pg_destroy(database->pg);
	database->pg = pg_connect(database->postgres->dsn, "outbox-relay api", CONNECT_MS, err);
	return database->pg != NULL;
}

static bool ask_database(struct api_database *database, struct api_question *question)
{
	struct pg_param params[API_QUESTION_PARAMS];
	struct pg_result *rows;

	for (int i = 0; i < question->param_count; i++)
		params[i] = (struct pg_param){question->params[i]};
	rows = schema_query(database->pg, database->postgres->schema, question->sql, params,
	    question->param_count, &question->err);
	text_copy(
	    question->sqlstate, sizeof question->sqlstate, rows ? "" : pg_sqlstate(database->pg));
	if (rows && pg_rows(rows) > 0 && !pg_is_null(rows, 0, 0))
		question->json = xstrdup(pg_value(rows, 0, 0));
	pg_result_destroy(rows);
	return rows != NULL;
}

/*
 * The first question notices a connection that broke while it was idle: it is sent again on a new
 * connection.
 */
static void answer_api_question(struct api_database *database, struct api_question *question)
{
	bool was_idle = database->pg != NULL;
	int64_t left = question->give_up_ms - clock_ms();

	if (left <= 0) {
		err_set(&question->err, ERR_RETRY, "too many questions wait for the database");
		return;
	}
	begin_limit(database, left);
	if (!database->pg && !connect_anew(database, &question->err))
		return;
	question->well = ask_database(database, question);
	if (question->well || pg_state(database->pg) == PG_IDLE)
		return;
	/* A change is not sent again: it may have taken effect before the connection broke. */
	if (was_idle && !question->changes && connect_anew(database, &question->err))
		question->well = ask_database(database, question);
	if (!question->well) {
		pg_destroy(database->pg);
		database->pg = NULL;
	}
}

static void look_at_limit(struct api_database *database)
{
	struct api_question question = {
	    .sql = sql_api_payload_most, .give_up_ms = clock_ms() + CONNECT_MS};
	int64_t most;

	answer_api_question(database, &question);
	if (question.json && text_to_int64(question.json, 0, INT64_MAX, &most))
		atomic_store(&database->payload_most, most);
	api_question_finish(&question);
	database->look_at = clock_ms() + LOOK_MS;
	pthread_mutex_lock(&database->mutex);
	database->has_looked = true;
	pthread_cond_broadcast(&database->looked);
	pthread_mutex_unlock(&database->mutex);
}

/* With the mutex. False: the time is over. */
static bool wait_for_condition(
    struct api_database *database, pthread_cond_t *condition, int64_t at_ms)
{
	struct timespec until;
	int64_t left = at_ms - clock_ms();

	if (left <= 0)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += left / 1000 + 1;
	return pthread_cond_timedwait(condition, &database->mutex, &until) == 0;
}

/* NULL: the thread must ask for the payload size again, or end. */
static struct api_question *next_question(struct api_database *database, bool *ret_ending)
{
	struct api_question *question;

	pthread_mutex_lock(&database->mutex);
	while (!database->waiting && !database->ending &&
	       wait_for_condition(database, &database->asked, database->look_at))
		;
	/* Also at the end every waiting question is answered: its call rests until then. */
	question = database->waiting;
	*ret_ending = database->ending;
	if (question) {
		DL_DELETE(database->waiting, question);
		database->count--;
	}
	pthread_mutex_unlock(&database->mutex);
	return question;
}

static void *run_api_database(void *context)
{
	struct api_database *database = context;
	struct api_question *question;
	bool ending;

	pg_interrupt_by(database->limit_fd);
	/* First: without the limit every prepare is refused (no_database). */
	look_at_limit(database);
	while ((question = next_question(database, &ending)) || !ending) {
		if (question) {
			answer_api_question(database, question);
			question->done(question->context);
		}
		if (!ending && clock_ms() >= database->look_at)
			look_at_limit(database);
	}
	pg_destroy(database->pg);
	return NULL;
}

static struct api_database *create_api_database(const struct postgres_settings *postgres)
{
	struct api_database *database = xcalloc(1, sizeof *database);
	pthread_condattr_t attributes;

	database->postgres = postgres;
	atomic_init(&database->payload_most, -1);
	pthread_mutex_init(&database->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&database->asked, &attributes);
	pthread_cond_init(&database->looked, &attributes);
	pthread_condattr_destroy(&attributes);
	database->limit_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	return database;
}

static void drop_claim(struct api_database *database, struct claim *claim)
{
	HASH_DEL(database->claims, claim);
	free(claim);
}

static void free_api_database(struct api_database *database)
{
	while (database->claims)
		drop_claim(database, database->claims);
	if (database->limit_fd >= 0)
		close(database->limit_fd);
	pthread_cond_destroy(&database->looked);
	pthread_cond_destroy(&database->asked);
	pthread_mutex_destroy(&database->mutex);
	free(database);
}

struct api_database *api_database_start(const struct postgres_settings *postgres, struct err *err)
{
	struct api_database *database = create_api_database(postgres);
	int64_t give_up_ms = clock_ms() + CONNECT_MS;

	if (database->limit_fd < 0 ||
	    pthread_create(&database->thread, NULL, run_api_database, database) != 0) {
		err_set(err, ERR_FATAL, "no timer or no thread for the HTTP interface: %s",
		    strerror(errno));
		free_api_database(database);
		return NULL;
	}
	pthread_mutex_lock(&database->mutex);
	while (!database->has_looked && wait_for_condition(database, &database->looked, give_up_ms))
		;
	pthread_mutex_unlock(&database->mutex);
	return database;
}

/* With the mutex. uthash lists entries in the order in which they were added: the first is the
 * oldest. */
static void drop_old_claims(struct api_database *database, int64_t now)
{
	while (database->claims &&
	       (database->claims->until_ms <= now || HASH_COUNT(database->claims) >= MOST_CLAIMS))
		drop_claim(database, database->claims);
}

bool api_database_claim(struct api_database *database, const unsigned char id[UUID_BYTES],
    const unsigned char digest[LOOKBACK_DIGEST])
{
	int64_t now = clock_ms();
	struct claim *claim;
	bool own;

	pthread_mutex_lock(&database->mutex);
	drop_old_claims(database, now);
	HASH_FIND(hh, database->claims, id, UUID_BYTES, claim);
	own = !claim || memcmp(claim->digest, digest, LOOKBACK_DIGEST) == 0;
	/* A repetition keeps the time of the first claim, and so its place in the order of age. */
	if (!claim) {
		claim = xcalloc(1, sizeof *claim);
		memcpy(claim->id, id, UUID_BYTES);
		memcpy(claim->digest, digest, LOOKBACK_DIGEST);
		claim->until_ms = now + CLAIM_MS;
		HASH_ADD(hh, database->claims, id, UUID_BYTES, claim);
	}
	pthread_mutex_unlock(&database->mutex);
	return own;
}

void api_database_unclaim(struct api_database *database, const unsigned char id[UUID_BYTES])
{
	struct claim *claim;

	pthread_mutex_lock(&database->mutex);
	HASH_FIND(hh, database->claims, id, UUID_BYTES, claim);
	if (claim)
		drop_claim(database, claim);
	pthread_mutex_unlock(&database->mutex);
}

int64_t api_database_payload_most(struct api_database *database)
{
	return atomic_load(&database->payload_most);
}

bool api_database_ask(struct api_database *database, struct api_question *question)
{
	bool taken;

	pthread_mutex_lock(&database->mutex);
	taken = database->count < MOST_WAITING && !database->ending;
	if (taken) {
		DL_APPEND(database->waiting, question);
		database->count++;
		pthread_cond_signal(&database->asked);
	}
	pthread_mutex_unlock(&database->mutex);
	return taken;
}

void api_database_stop(struct api_database *database)
{
	if (!database)
		return;
	pthread_mutex_lock(&database->mutex);
	database->ending = true;
	/* The timer interrupts the running question; begin_limit does not set it again. */
	pg_interrupt_in(database->limit_fd, 0);
	pthread_cond_signal(&database->asked);
	pthread_mutex_unlock(&database->mutex);
	pthread_join(database->thread, NULL);
	free_api_database(database);
}
