/*
 * The order and the pace of calls to businesses, without I/O. Rows are claimed from the database
 * into lines (a type, a host, a service); schedule_next takes the next question, schedule_answered
 * settles its rows. [hosts] has breakers and limits, [claims] decides how many rows to claim.
 */
#include "schedule.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bucket.h"
#include "text.h"

enum {
	WINDOW_FIRST = 64,
	WINDOW_MIN = 4,
	WINDOW_MAX = 4096,
	GROW_MS = 500,    /* a window that is emptied within this time is too small */
	SHRINK_MS = 1000, /* a window whose rows waited this long is too large */
	FULL_MS = 10,     /* a transport without room is left alone */
	SWEEP_MS = 200,
	SCOUT_FIRST_MS = 100,
	SCOUT_MAX_MS = 5000,
	SCOUT_PARTS = 4, /* a scout waits for 1/4 of the breaker's pause at most */
	SCOUT_ROWS_MAX = 512,
	PROBE_WAIT_MS = 1000,
	CLAIM_PARTS = 4,
	HOSTS_KEPT = 256,
	HOST_FORGET_MS = 600000,
	HOST_ERROR = 512,
};

struct schedule_host {
	struct schedule_host *next;
	char name[DESTINATION_HOST];
	struct breaker breaker;
	int64_t pause_ms; /* the breaker's pause, of the service that was called last */
	int in_flight, lines;
	char error[HOST_ERROR]; /* of the last request */
};

/* Rows of a type for a host by a service, in the order of their claims; never empty. */
struct line {
	struct line *next;
	struct schedule_host *host;
	int service;
	struct schedule_row *first, *last;
};

struct type {
	struct line *lines; /* the next to ask first */
	int waiting, in_flight;
	int window;
	bool more;   /* the last claim brought as many as it might */
	bool shrunk; /* since the last claim */
	/*
	 * about the claim that is being added: a row came; a row came that no closed-off host holds
	 * up; a closed-off host
	 */
	bool came, open;
	struct schedule_host *closed;
	int64_t claimed_at;
	/* only rows for closed-off hosts came: one of those hosts; NULL: it is not so */
	struct schedule_host *holder;
	int64_t scout_at, scout_ms, held_at;
	int scout_rows;
};

struct service {
	struct bucket bucket;
	int64_t left_until;
};

struct schedule {
	struct schedule_settings settings;
	struct service *services;
	struct type *types;
	struct schedule_host *hosts;
	struct schedule_question *questions; /* under way */
	struct schedule_row *settled, *settled_last;
	int host_count, settled_count, rows, waiting, in_flight;
	int ask_turn, claim_turn;
	int held; /* types */
	bool draining;
	int64_t late, sweep_at, ask_at, claim_at;
	uint64_t seed;
};

static int64_t earlier_time(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

struct schedule *schedule_create(const struct schedule_settings *settings, int64_t now)
{
	struct schedule *schedule = xcalloc(1, sizeof *schedule);

	schedule->settings = *settings;
	schedule->seed = settings->seed;
	schedule->ask_at = schedule->claim_at = INT64_MAX;
	schedule->services = xcalloc((size_t)settings->service_count, sizeof *schedule->services);
	schedule->types = xcalloc((size_t)settings->type_count, sizeof *schedule->types);
	for (int i = 0; i < settings->service_count; i++)
		bucket_init(&schedule->services[i].bucket, now);
	for (int i = 0; i < settings->type_count; i++)
		schedule->types[i].window = WINDOW_FIRST;
	return schedule;
}

static const struct config_check *check_of(const struct schedule *schedule, int service)
{
	return service < 0 ? NULL : &schedule->settings.services[service];
}

/* --- rows ----------------------------------------------------------------------------------- */

void schedule_release(struct schedule *schedule, struct schedule_row *row)
{
	schedule->rows--;
	free(row->biz_id);
	free(row->prepared_at);
	free(row->url);
	free(row->verdict);
	free(row);
}

static struct check_verdict_id facts_of(const struct schedule_row *row, int64_t now)
{
	return (struct check_verdict_id){
	    .attempts = row->attempts,
	    .pendings = row->pendings,
	    .age_ms = row->age_ms + (now - row->claimed_at),
	};
}

/* Moves the row to the list of settlements. */
static void settle_row(struct schedule *schedule, int64_t now, struct schedule_row *row,
    const struct check_verdict *verdict)
{
	row->verdict = xmalloc(sizeof *row->verdict);
	*row->verdict = *verdict;
	row->settled_at = now;
	row->next = NULL;
	if (schedule->settled)
		schedule->settled_last->next = row;
	else
		schedule->settled = row;
	schedule->settled_last = row;
	schedule->settled_count++;
}

static void cannot_ask(struct schedule *schedule, int64_t now, struct schedule_row *row,
    const char *result, const char *error)
{
	struct check_verdict_id facts = facts_of(row, now);
	struct check_verdict verdict = check_verdict_cannot_ask(
	    check_of(schedule, row->service), &facts, result, error, &schedule->seed);

	settle_row(schedule, now, row, &verdict);
}

static void give_row_back(struct schedule *schedule, int64_t now, struct schedule_row *row,
    const char *result, const char *error, int64_t pause_ms)
{
	struct check_verdict verdict =
	    check_verdict_give_back(result, error, pause_ms, &schedule->seed);

	settle_row(schedule, now, row, &verdict);
}

/* Gives the row back, since its host is closed off. */
static void give_back_closed(struct schedule *schedule, int64_t now, struct schedule_row *row,
    const struct schedule_host *host)
{
	int64_t wait = breaker_wait(&host->breaker, now);
	char error[DESTINATION_HOST + 64];

	/* A probe is in flight: its outcome is soon known. */
	if (wait == 0)
		wait =
		    earlier_time(PROBE_WAIT_MS, check_of(schedule, row->service)->breaker_pause_ms);
	snprintf(error, sizeof error, "%s failed again and again, and is left alone", host->name);
	give_row_back(schedule, now, row, "breaker", error, wait);
}

/* --- hosts ---------------------------------------------------------------------------------- */

static void free_from_hold(struct schedule *schedule, const struct schedule_host *host)
{
	for (int i = 0; i < schedule->settings.type_count; i++)
		if (schedule->types[i].holder == host)
			schedule->types[i].holder = NULL;
}

static bool is_forgettable(const struct schedule_host *host, int64_t now)
{
	return host->lines == 0 && host->in_flight == 0 &&
	       (host->breaker.tripped ? now - host->breaker.until > HOST_FORGET_MS
				      : host->breaker.failures == 0);
}

static void forget_hosts(struct schedule *schedule, int64_t now)
{
	struct schedule_host **at = &schedule->hosts;

	while (*at) {
		struct schedule_host *host = *at;

		if (!is_forgettable(host, now)) {
			at = &host->next;
			continue;
		}
		/* A held type points to its host. */
		free_from_hold(schedule, host);
		*at = host->next;
		free(host);
		schedule->host_count--;
	}
}

/* Moves the host that it finds to the front of the list. */
static struct schedule_host *find_host(struct schedule *schedule, const char *name, int64_t now)
{
	struct schedule_host **at = &schedule->hosts, *host;

	while (*at && !text_equal((*at)->name, name))
		at = &(*at)->next;
	host = *at;
	if (host) {
		*at = host->next;
	} else {
		/*
		 * Messages may bring any number of hosts. Hosts with rows or an open breaker stay,
		 * so there may be more than HOSTS_KEPT.
		 */
		if (schedule->host_count >= HOSTS_KEPT)
			forget_hosts(schedule, now);
		host = xcalloc(1, sizeof *host);
		text_copy(host->name, sizeof host->name, name);
		schedule->host_count++;
	}
	host->next = schedule->hosts;
	schedule->hosts = host;
	return host;
}

bool schedule_host(const struct schedule *schedule, int index, int64_t now,
    struct schedule_host_figures *ret_figures)
{
	const struct schedule_host *host = schedule->hosts;

	while (host && index-- > 0)
		host = host->next;
	if (host)
		*ret_figures = (struct schedule_host_figures){
		    host->name, host->error, breaker_state(&host->breaker, now), host->in_flight};
	return host;
}

/* --- lines ---------------------------------------------------------------------------------- */

static struct line *find_or_add_line(struct type *type, struct schedule_host *host, int service)
{
	struct line **at = &type->lines;

	while (*at && ((*at)->host != host || (*at)->service != service))
		at = &(*at)->next;
	if (!*at) {
		*at = xcalloc(1, sizeof **at);
		(*at)->host = host;
		(*at)->service = service;
		host->lines++;
	}
	return *at;
}

static void join_line(
    struct schedule *schedule, struct type *type, struct line *line, struct schedule_row *row)
{
	row->next = NULL;
	if (line->first)
		line->last->next = row;
	else
		line->first = row;
	line->last = row;
	type->waiting++;
	schedule->waiting++;
}

/* Takes out the row behind `before` (NULL: the first). */
static struct schedule_row *leave_line(
    struct schedule *schedule, struct type *type, struct line *line, struct schedule_row *before)
{
	struct schedule_row *row = before ? before->next : line->first;

	if (before)
		before->next = row->next;
	else
		line->first = row->next;
	if (line->last == row)
		line->last = before;
	type->waiting--;
	schedule->waiting--;
	return row;
}

/* *at: a line of the type's list. */
static void remove_line(struct line **at)
{
	struct line *line = *at;

	assert(!line->first);
	*at = line->next;
	line->host->lines--;
	free(line);
}

static void shrink_window(struct type *type)
{
	if (!type->shrunk && type->window > WINDOW_MIN)
		type->window /= 2;
	type->shrunk = true;
}

/* Gives back rows that waited too long: their claim would end before an answer comes. */
static void sweep_line(struct schedule *schedule, int64_t now, struct type *type, struct line *line)
{
	int64_t longest = schedule->settings.claim_ms / CLAIM_PARTS;

	while (line->first && now - line->first->claimed_at >= longest) {
		shrink_window(type);
		give_row_back(schedule, now, leave_line(schedule, type, line, NULL), "waited",
		    "it was not its turn in time", 0);
	}
}

static void empty_line(
    struct schedule *schedule, int64_t now, struct type *type, struct line *line, bool closed)
{
	while (line->first) {
		struct schedule_row *row = leave_line(schedule, type, line, NULL);

		if (closed)
			give_back_closed(schedule, now, row, line->host);
		else
			give_row_back(schedule, now, row, "waited", "the relay ended", 0);
	}
}

static void hold_type(struct type *type, int64_t now, struct schedule_host *host)
{
	int64_t longest = earlier_time(SCOUT_MAX_MS, 1 + host->pause_ms / SCOUT_PARTS);
	bool again = type->holder;

	type->holder = host;
	type->held_at = now;
	type->scout_ms = earlier_time(again ? type->scout_ms * 2 : SCOUT_FIRST_MS, longest);
	type->scout_rows =
	    again ? (int)earlier_time(type->scout_rows * 2, SCOUT_ROWS_MAX) : WINDOW_FIRST;
	type->scout_at = now + type->scout_ms;
}

/*
 * Goes through every line. closed NULL: gives back rows that are too old; else the rows of that
 * host.
 */
static void sweep_lines(struct schedule *schedule, int64_t now, struct schedule_host *closed)
{
	for (int i = 0; i < schedule->settings.type_count; i++) {
		struct type *type = &schedule->types[i];
		struct line **at = &type->lines;

		while (*at) {
			if (!closed)
				sweep_line(schedule, now, type, *at);
			else if ((*at)->host == closed) {
				empty_line(schedule, now, type, *at, true);
				hold_type(type, now, closed);
			}
			if ((*at)->first)
				at = &(*at)->next;
			else
				remove_line(at);
		}
	}
}

/* --- claims --------------------------------------------------------------------------------- */

/* The number of rows to claim of a type that brought only rows for closed-off hosts. */
static int wants_of_held(struct schedule *schedule, int64_t now, struct type *type)
{
	const struct breaker *breaker = &type->holder->breaker;
	int64_t at = type->scout_at;

	/* one row for the probe; if that row is for another host, the next claim is a scout's */
	if (type->held_at < breaker->until && type->waiting == 0) {
		if (breaker_allows(breaker, now))
			return 1;
		at = earlier_time(at, breaker->until > now ? breaker->until : at);
	}
	if (now >= type->scout_at)
		return 1 + type->scout_rows / (1 + schedule->held);
	schedule->claim_at = earlier_time(schedule->claim_at, at);
	return 0;
}

static int wants_of_type(struct schedule *schedule, int64_t now, struct type *type)
{
	if (type->holder && !type->holder->breaker.tripped)
		type->holder = NULL;
	if (type->holder)
		return wants_of_held(schedule, now, type);
	return type->waiting > type->window / 2 ? 0 : type->window - type->waiting;
}

int schedule_wants(struct schedule *schedule, int64_t now, int *most)
{
	int count = schedule->settings.type_count, wanting = 0, sum = 0;
	int room = SCHEDULE_ROWS - schedule->rows, share;

	schedule->claim_at = INT64_MAX;
	memset(most, 0, (size_t)count * sizeof *most);
	if (schedule->draining)
		return 0;
	schedule->held = 0;
	for (int i = 0; i < count; i++)
		schedule->held += schedule->types[i].holder != NULL;
	for (int i = 0; i < count; i++) {
		most[i] = wants_of_type(schedule, now, &schedule->types[i]);
		wanting += most[i] > 0;
	}
	/* Equal parts: the backlog of one type must not fill the room of the others. */
	share = wanting && room > wanting ? room / wanting : 1;
	for (int i = 0; i < count; i++) {
		int *mine = &most[(schedule->claim_turn + i) % count];

		*mine = (int)earlier_time(*mine, earlier_time(share, room - sum));
		sum += *mine;
	}
	if (count)
		schedule->claim_turn = (schedule->claim_turn + 1) % count;
	return sum;
}

static struct schedule_row *copy_row(const struct schedule_claimed *claimed, int service)
{
	struct schedule_row *row = xmalloc(sizeof *row);

	*row = (struct schedule_row){
	    .biz_id = xstrdup(claimed->biz_id),
	    .prepared_at = xstrdup(claimed->prepared_at),
	    .url = xstrdup(claimed->url),
	    .type = claimed->type,
	    .service = service,
	    .attempts = claimed->attempts,
	    .pendings = claimed->pendings,
	    .age_ms = claimed->age_ms,
	    .claim = claimed->claim,
	    .claimed_at = claimed->claimed_at,
	};
	return row;
}

/* The first row of a claim, when those of the one before are gone already. */
static void grow_window(struct type *type, int64_t now)
{
	if (type->more && type->waiting == 0 && now - type->claimed_at < GROW_MS)
		type->window = (int)earlier_time(type->window * 2, WINDOW_MAX);
}

void schedule_add(struct schedule *schedule, int64_t now, const struct schedule_claimed *claimed,
    const struct destination *route)
{
	struct type *type = &schedule->types[claimed->type];
	struct schedule_row *row = copy_row(claimed, route->service);
	struct schedule_host *host;

	schedule->rows++;
	if (!type->came)
		grow_window(type, now);
	type->came = true;
	/* Such rows need no host, so they do not show that only closed-off hosts have rows. */
	if (claimed->expired) {
		struct check_verdict verdict = check_verdict_expired();

		type->open = true;
		settle_row(schedule, now, row, &verdict);
		return;
	}
	if (route->service < 0) {
		type->open = true;
		cannot_ask(schedule, now, row, route->refusal.code, route->refusal.text);
		return;
	}

	host = find_host(schedule, route->host, now);
	if (!breaker_allows(&host->breaker, now)) {
		give_back_closed(schedule, now, row, host);
		type->closed = host;
		return;
	}
	/* a row for a probe does not show that there can be calls about the rows behind it */
	if (host->breaker.tripped)
		type->closed = host;
	else
		type->open = true;
	join_line(schedule, type, find_or_add_line(type, host, route->service), row);
}

void schedule_claim_over(struct schedule *schedule, int64_t now, const int *most, const int *came)
{
	for (int i = 0; i < schedule->settings.type_count; i++) {
		struct type *type = &schedule->types[i];

		/* No row was wanted, so that none came shows nothing. */
		if (most[i] == 0)
			continue;
		type->more = came[i] >= most[i];
		type->shrunk = false;
		type->claimed_at = now;
		if (type->open)
			type->holder = NULL;
		else if (type->closed || type->holder)
			hold_type(type, now, type->closed ? type->closed : type->holder);
		type->came = type->open = false;
		type->closed = NULL;
	}
}

/* --- questions ------------------------------------------------------------------------------ */

/* May the service be called once more now? If not, from when on. */
static bool has_service_turn(struct schedule *schedule, int64_t now, int service)
{
	const struct config_check *check = check_of(schedule, service);
	struct service *mine = &schedule->services[service];
	int64_t wait;

	if (now < mine->left_until) {
		schedule->ask_at = earlier_time(schedule->ask_at, mine->left_until);
		return false;
	}
	wait = bucket_wait(&mine->bucket, check->rate, now);
	if (wait > 0)
		schedule->ask_at = earlier_time(schedule->ask_at, now + wait);
	return wait == 0;
}

static bool has_room_in_flight(
    const struct schedule *schedule, const struct type *type, struct line *line)
{
	const struct config_check *check = check_of(schedule, line->service);

	return type->in_flight < check->type_in_flight &&
	       line->host->in_flight < check->host_in_flight;
}

/* Rows of the same URL as the first, from not too far behind. */
static int take_line_rows(struct schedule *schedule, struct type *type, struct line *line, int most,
    struct schedule_row **rows)
{
	struct schedule_row *before = NULL;
	int count = 0, looked = 0;

	rows[count++] = leave_line(schedule, type, line, NULL);
	while (count < most && looked++ < 4 * most && (before ? before->next : line->first)) {
		struct schedule_row *next = before ? before->next : line->first;

		if (text_equal(next->url, rows[0]->url))
			rows[count++] = leave_line(schedule, type, line, before);
		else
			before = next;
	}
	return count;
}

static void link_question(struct schedule *schedule, struct schedule_question *question)
{
	question->after = schedule->questions;
	if (question->after)
		question->after->before = question;
	schedule->questions = question;
}

static void free_question(struct schedule *schedule, struct schedule_question *question)
{
	if (question->after)
		question->after->before = question->before;
	if (question->before)
		question->before->after = question->after;
	else
		schedule->questions = question->after;
	free((void *)question->ask.ids);
	free(question->rows);
	free(question);
}

static const struct check_id *ids_of(struct schedule_row *const *rows, int count)
{
	struct check_id *ids = xcalloc((size_t)count, sizeof *ids);

	for (int i = 0; i < count; i++)
		ids[i] = (struct check_id){.biz_id = rows[i]->biz_id,
		    .prepared_at = rows[i]->prepared_at,
		    .attempt = rows[i]->attempts + 1};
	return ids;
}

static struct schedule_question *ask_of_line(
    struct schedule *schedule, int64_t now, int number, struct line *line)
{
	struct schedule_question *question = xcalloc(1, sizeof *question);
	struct type *type = &schedule->types[number];
	const struct config_check *check = check_of(schedule, line->service);

	question->probe = breaker_begin(&line->host->breaker, now);
	/* batch is at most 1000 */
	int most = question->probe ? 1 : (int)check->batch;

	question->rows = xcalloc((size_t)most, sizeof(struct schedule_row *));
	question->ask.id_count = take_line_rows(schedule, type, line, most, question->rows);
	question->ask.ids = ids_of(question->rows, question->ask.id_count);
	question->ask.url = question->rows[0]->url;
	question->ask.opaque = question;
	question->service = line->service;
	question->type = number;
	question->host = line->host;
	line->host->pause_ms = check->breaker_pause_ms;
	if (now - question->rows[0]->claimed_at > SHRINK_MS)
		shrink_window(type);

	bucket_take(&schedule->services[line->service].bucket, check->rate);
	type->in_flight++;
	line->host->in_flight++;
	schedule->in_flight++;
	link_question(schedule, question);
	return question;
}

/* Moves the line that was called behind the others. */
static void turn_lines(struct type *type, struct line **at)
{
	struct line *line = *at;

	if (!line->first) {
		remove_line(at);
		return;
	}
	*at = line->next;
	line->next = NULL;
	for (at = &type->lines; *at; at = &(*at)->next)
		;
	*at = line;
}

static struct schedule_question *ask_of_type(struct schedule *schedule, int64_t now, int number)
{
	struct type *type = &schedule->types[number];
	struct line **at = &type->lines;

	while (*at) {
		struct line *line = *at;

		/*
		 * Rows of a closed-off host go back: here they would count for the window, in place
		 * of rows of hosts that work.
		 */
		if (!breaker_allows(&line->host->breaker, now)) {
			struct schedule_host *host = line->host;

			empty_line(schedule, now, type, line, true);
			remove_line(at);
			hold_type(type, now, host);
			continue;
		}
		sweep_line(schedule, now, type, line);
		if (!line->first) {
			remove_line(at);
			continue;
		}
		if (has_room_in_flight(schedule, type, line) &&
		    has_service_turn(schedule, now, line->service)) {
			struct schedule_question *question =
			    ask_of_line(schedule, now, number, line);

			turn_lines(type, at);
			return question;
		}
		at = &line->next;
	}
	return NULL;
}

struct schedule_question *schedule_next(struct schedule *schedule, int64_t now)
{
	int count = schedule->settings.type_count;

	if (now >= schedule->sweep_at) {
		sweep_lines(schedule, now, NULL);
		schedule->sweep_at = now + SWEEP_MS;
	}
	schedule->ask_at = INT64_MAX;
	if (schedule->waiting == 0)
		return NULL;
	if (schedule->in_flight < schedule->settings.in_flight)
		for (int i = 0; i < count; i++) {
			int number = (schedule->ask_turn + i) % count;
			struct schedule_question *question = ask_of_type(schedule, now, number);

			if (question) {
				/*
				 * Another type is first next time: none waits behind a large one.
				 */
				schedule->ask_turn = (number + 1) % count;
				return question;
			}
		}
	return NULL;
}

/* --- answers -------------------------------------------------------------------------------- */

static enum breaker_outcome breaker_outcome_of(const struct check_answer *answer)
{
	if (answer->reached)
		return BREAKER_SUCCESS;
	if (answer->failure && check_verdict_is_ours(answer->failure))
		return BREAKER_NEITHER;
	return BREAKER_FAILURE;
}

/* Ends a question whose rows have been moved elsewhere. */
static void end_question(struct schedule *schedule, int64_t now, struct schedule_question *question,
    enum breaker_outcome outcome)
{
	const struct config_check *check = check_of(schedule, question->service);
	struct schedule_host *host = question->host;
	bool was_tripped = host->breaker.tripped;

	schedule->types[question->type].in_flight--;
	host->in_flight--;
	schedule->in_flight--;
	breaker_end(&host->breaker, now, question->probe, outcome, check->breaker_failures,
	    check->breaker_pause_ms);
	/* It opened just now: rows that wait for the host go back. */
	if (host->breaker.tripped && (!was_tripped || question->probe))
		sweep_lines(schedule, now, host);
	/* The probe succeeded: held types claim at once, without waiting for their scouts. */
	if (!host->breaker.tripped && was_tripped)
		free_from_hold(schedule, host);
	free_question(schedule, question);
}

/* An answer about a row whose claim is over is ignored: another relay may be asking by now. */
static void answer_row(struct schedule *schedule, int64_t now, struct schedule_row *row,
    enum check_word word, const struct check_answer *answer)
{
	struct check_verdict_id facts = facts_of(row, now);
	struct check_verdict verdict;

	if (now - row->claimed_at >= schedule->settings.claim_ms) {
		schedule->late++;
		schedule_release(schedule, row);
		return;
	}
	verdict = check_verdict_of_answer(
	    check_of(schedule, row->service), &facts, word, answer, &schedule->seed);
	settle_row(schedule, now, row, &verdict);
}

void schedule_answered(struct schedule *schedule, int64_t now, struct schedule_question *question,
    const struct check_answer *answer)
{
	for (int i = 0; i < question->ask.id_count; i++)
		answer_row(schedule, now, question->rows[i],
		    answer->words ? answer->words[i] : CHECK_UNKNOWN, answer);
	text_copy(question->host->error, sizeof question->host->error,
	    answer->reached ? "" : answer->error);
	end_question(schedule, now, question, breaker_outcome_of(answer));
}

void schedule_put_back(struct schedule *schedule, int64_t now, struct schedule_question *question)
{
	struct type *type = &schedule->types[question->type];
	struct service *service = &schedule->services[question->service];

	/* Nothing would take them out of a line again. */
	if (schedule->draining)
		for (int i = 0; i < question->ask.id_count; i++)
			give_row_back(
			    schedule, now, question->rows[i], "waited", "the relay ended", 0);
	/* The last one first, each to the front: the line keeps its order. */
	for (int i = question->ask.id_count - 1; i >= 0 && !schedule->draining; i--) {
		struct line *line = find_or_add_line(type, question->host, question->service);
		struct schedule_row *first = line->first, *last = line->last;

		line->first = NULL;
		join_line(schedule, type, line, question->rows[i]);
		line->first->next = first;
		line->last = first ? last : question->rows[i];
	}
	bucket_give_back(&service->bucket, check_of(schedule, question->service)->rate);
	service->left_until = now + FULL_MS;
	end_question(schedule, now, question, BREAKER_NEITHER);
}

void schedule_refused(
    struct schedule *schedule, int64_t now, struct schedule_question *question, const char *error)
{
	for (int i = 0; i < question->ask.id_count; i++)
		cannot_ask(schedule, now, question->rows[i], "refused", error);
	end_question(schedule, now, question, BREAKER_NEITHER);
}

/* --- settlements ---------------------------------------------------------------------------- */

int schedule_settlements(const struct schedule *schedule, int64_t *ret_since)
{
	*ret_since = schedule->settled ? schedule->settled->settled_at : INT64_MAX;
	return schedule->settled_count;
}

struct schedule_row *schedule_take(struct schedule *schedule, int most)
{
	int64_t claim = schedule->settled ? schedule->settled->claim : 0;
	struct schedule_row *taken = NULL, **end = &taken, **at = &schedule->settled;

	schedule->settled_last = NULL;
	while (*at) {
		struct schedule_row *row = *at;

		/* One statement settles rows of one claim (outbox.lookback_settle). */
		if (row->claim != claim || most == 0) {
			schedule->settled_last = row;
			at = &row->next;
			continue;
		}
		*at = row->next;
		row->next = NULL;
		*end = row;
		end = &row->next;
		schedule->settled_count--;
		most--;
	}
	return taken;
}

/* --- the rest ------------------------------------------------------------------------------- */

void schedule_drain(struct schedule *schedule, int64_t now)
{
	schedule->draining = true;
	for (int i = 0; i < schedule->settings.type_count; i++) {
		struct type *type = &schedule->types[i];

		while (type->lines) {
			empty_line(schedule, now, type, type->lines, false);
			remove_line(&type->lines);
		}
	}
}

int64_t schedule_deadline(const struct schedule *schedule, bool wants_too)
{
	int64_t at =
	    wants_too ? earlier_time(schedule->ask_at, schedule->claim_at) : schedule->ask_at;

	return schedule->waiting ? earlier_time(at, schedule->sweep_at) : at;
}

struct schedule_figures schedule_figures(const struct schedule *schedule)
{
	return (struct schedule_figures){
	    .rows = schedule->rows,
	    .waiting = schedule->waiting,
	    .in_flight = schedule->in_flight,
	    .late = schedule->late,
	};
}

static void release_list(struct schedule *schedule, struct schedule_row *row)
{
	while (row) {
		struct schedule_row *next = row->next;

		schedule_release(schedule, row);
		row = next;
	}
}

void schedule_destroy(struct schedule *schedule)
{
	if (!schedule)
		return;
	/* Waiting rows become settlements, which are released below. */
	schedule_drain(schedule, 0);
	while (schedule->questions) {
		struct schedule_question *question = schedule->questions;

		for (int i = 0; i < question->ask.id_count; i++)
			schedule_release(schedule, question->rows[i]);
		free_question(schedule, question);
	}
	release_list(schedule, schedule->settled);
	while (schedule->hosts) {
		struct schedule_host *host = schedule->hosts;

		schedule->hosts = host->next;
		free(host);
	}
	free(schedule->services);
	free(schedule->types);
	free(schedule);
}
