#include "api_desk.h"

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
	CLAIM_MS = 600000, /* a reader that lags longer stores the first prepare all the same */
	MOST_CLAIMS = 100000,
};

/* A prepare that this process sent, by the UUID of its id; the oldest comes first. */
struct claim {
	unsigned char id[UUID_BYTES], digest[LOOKBACK_DIGEST];
	int64_t until_ms;
	UT_hash_handle hh;
};

struct api_desk {
	const struct config_postgres *postgres;
	int limit_fd; /* a timer: what runs is cancelled when it is readable */
	pthread_t thread;
	struct pg *pg; /* of the thread; NULL: none */
	pthread_mutex_t mutex;
	pthread_cond_t asked, looked;
	int64_t look_at;              /* of the thread: when it asks what a payload may weigh */
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

static void limit_to(struct api_desk *desk, int64_t ms)
{
	struct itimerspec when = {
	    .it_value = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000 + 1}};

	timerfd_settime(desk->limit_fd, 0, &when, NULL);
}

/* Not again once it is to end. */
static void begin_limit(struct api_desk *desk, int64_t ms)
{
	pthread_mutex_lock(&desk->mutex);
	if (!desk->ending)
		limit_to(desk, ms);
	pthread_mutex_unlock(&desk->mutex);
}

static bool connect_anew(struct api_desk *desk, struct err *err)
{
	pg_destroy(desk->pg);
	desk->pg = pg_connect(desk->postgres->dsn, "outbox-relay api", CONNECT_MS, err);
	return desk->pg != NULL;
}

static bool ask(struct api_desk *desk, struct api_question *question)
{
	struct pg_param params[API_QUESTION_PARAMS];
	struct pg_result *rows;

	for (int i = 0; i < question->param_count; i++)
		params[i] = (struct pg_param){question->params[i]};
	rows = schema_query(desk->pg, desk->postgres->schema, question->sql, params,
	    question->param_count, &question->err);
	text_copy(question->sqlstate, sizeof question->sqlstate, rows ? "" : pg_sqlstate(desk->pg));
	if (rows && pg_rows(rows) > 0 && !pg_is_null(rows, 0, 0))
		question->json = xstrdup(pg_value(rows, 0, 0));
	pg_result_destroy(rows);
	return rows != NULL;
}

/* A connection that broke while it was idle is noticed by the first question. */
static void answer(struct api_desk *desk, struct api_question *question)
{
	bool was_idle = desk->pg != NULL;
	int64_t left = question->give_up_ms - clock_ms();

	if (left <= 0) {
		err_set(&question->err, ERR_RETRY, "too many questions wait for the database");
		return;
	}
	begin_limit(desk, left);
	if (!desk->pg && !connect_anew(desk, &question->err))
		return;
	question->well = ask(desk, question);
	if (question->well || pg_state(desk->pg) == PG_IDLE)
		return;
	if (was_idle && !question->changes && connect_anew(desk, &question->err))
		question->well = ask(desk, question);
	if (!question->well) {
		pg_destroy(desk->pg);
		desk->pg = NULL;
	}
}

static void look_at_limit(struct api_desk *desk)
{
	struct api_question question = {
	    .sql = sql_api_payload_most, .give_up_ms = clock_ms() + CONNECT_MS};
	int64_t most;

	answer(desk, &question);
	if (question.json && text_to_int64(question.json, 0, INT64_MAX, &most))
		atomic_store(&desk->payload_most, most);
	api_question_finish(&question);
	desk->look_at = clock_ms() + LOOK_MS;
	pthread_mutex_lock(&desk->mutex);
	desk->has_looked = true;
	pthread_cond_broadcast(&desk->looked);
	pthread_mutex_unlock(&desk->mutex);
}

/* With the mutex. False: the time is over. */
static bool wait_until(struct api_desk *desk, pthread_cond_t *condition, int64_t at_ms)
{
	struct timespec until;
	int64_t left = at_ms - clock_ms();

	if (left <= 0)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += left / 1000 + 1;
	return pthread_cond_timedwait(condition, &desk->mutex, &until) == 0;
}

/* NULL: it is to look, or to end. */
static struct api_question *next_question(struct api_desk *desk, bool *ret_ending)
{
	struct api_question *question;

	pthread_mutex_lock(&desk->mutex);
	while (!desk->waiting && !desk->ending && wait_until(desk, &desk->asked, desk->look_at))
		;
	question = desk->waiting;
	*ret_ending = desk->ending;
	if (question) {
		DL_DELETE(desk->waiting, question);
		desk->count--;
	}
	pthread_mutex_unlock(&desk->mutex);
	return question;
}

static void *run(void *context)
{
	struct api_desk *desk = context;
	struct api_question *question;
	bool ending;

	pg_interrupt_by(desk->limit_fd);
	look_at_limit(desk);
	while ((question = next_question(desk, &ending)) || !ending) {
		if (question) {
			answer(desk, question);
			question->done(question->context);
		}
		if (!ending && clock_ms() >= desk->look_at)
			look_at_limit(desk);
	}
	pg_destroy(desk->pg);
	return NULL;
}

static struct api_desk *create(const struct config_postgres *postgres)
{
	struct api_desk *desk = xcalloc(1, sizeof *desk);
	pthread_condattr_t attributes;

	desk->postgres = postgres;
	atomic_init(&desk->payload_most, -1);
	pthread_mutex_init(&desk->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&desk->asked, &attributes);
	pthread_cond_init(&desk->looked, &attributes);
	pthread_condattr_destroy(&attributes);
	desk->limit_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	return desk;
}

static void drop_claim(struct api_desk *desk, struct claim *claim)
{
	HASH_DEL(desk->claims, claim);
	free(claim);
}

static void desk_free(struct api_desk *desk)
{
	while (desk->claims)
		drop_claim(desk, desk->claims);
	if (desk->limit_fd >= 0)
		close(desk->limit_fd);
	pthread_cond_destroy(&desk->looked);
	pthread_cond_destroy(&desk->asked);
	pthread_mutex_destroy(&desk->mutex);
	free(desk);
}

struct api_desk *api_desk_start(const struct config_postgres *postgres, struct err *err)
{
	struct api_desk *desk = create(postgres);
	int64_t give_up_ms = clock_ms() + CONNECT_MS;

	if (desk->limit_fd < 0 || pthread_create(&desk->thread, NULL, run, desk) != 0) {
		err_set(err, ERR_FATAL, "no timer or no thread for the HTTP interface: %s",
		    strerror(errno));
		desk_free(desk);
		return NULL;
	}
	pthread_mutex_lock(&desk->mutex);
	while (!desk->has_looked && wait_until(desk, &desk->looked, give_up_ms))
		;
	pthread_mutex_unlock(&desk->mutex);
	return desk;
}

/* With the mutex. uthash lists entries in the order in which they were added: the first is the
 * oldest. */
static void drop_old_claims(struct api_desk *desk, int64_t now)
{
	while (desk->claims &&
	       (desk->claims->until_ms <= now || HASH_COUNT(desk->claims) >= MOST_CLAIMS))
		drop_claim(desk, desk->claims);
}

bool api_desk_claim(struct api_desk *desk, const unsigned char id[UUID_BYTES],
    const unsigned char digest[LOOKBACK_DIGEST])
{
	int64_t now = clock_ms();
	struct claim *claim;
	bool own;

	pthread_mutex_lock(&desk->mutex);
	drop_old_claims(desk, now);
	HASH_FIND(hh, desk->claims, id, UUID_BYTES, claim);
	own = !claim || memcmp(claim->digest, digest, LOOKBACK_DIGEST) == 0;
	if (!claim) {
		claim = xcalloc(1, sizeof *claim);
		memcpy(claim->id, id, UUID_BYTES);
		memcpy(claim->digest, digest, LOOKBACK_DIGEST);
		claim->until_ms = now + CLAIM_MS;
		HASH_ADD(hh, desk->claims, id, UUID_BYTES, claim);
	}
	pthread_mutex_unlock(&desk->mutex);
	return own;
}

void api_desk_unclaim(struct api_desk *desk, const unsigned char id[UUID_BYTES])
{
	struct claim *claim;

	pthread_mutex_lock(&desk->mutex);
	HASH_FIND(hh, desk->claims, id, UUID_BYTES, claim);
	if (claim)
		drop_claim(desk, claim);
	pthread_mutex_unlock(&desk->mutex);
}

int64_t api_desk_payload_most(struct api_desk *desk)
{
	return atomic_load(&desk->payload_most);
}

bool api_desk_ask(struct api_desk *desk, struct api_question *question)
{
	bool taken;

	pthread_mutex_lock(&desk->mutex);
	taken = desk->count < MOST_WAITING && !desk->ending;
	if (taken) {
		DL_APPEND(desk->waiting, question);
		desk->count++;
		pthread_cond_signal(&desk->asked);
	}
	pthread_mutex_unlock(&desk->mutex);
	return taken;
}

void api_desk_stop(struct api_desk *desk)
{
	if (!desk)
		return;
	pthread_mutex_lock(&desk->mutex);
	desk->ending = true;
	limit_to(desk, 0);
	pthread_cond_signal(&desk->asked);
	pthread_mutex_unlock(&desk->mutex);
	pthread_join(desk->thread, NULL);
	desk_free(desk);
}
