/*
 * The loop around a schedule: each turn moves on the two connections to Postgres and the
 * transports, asks the schedule what to do with whatever is idle, and waits until a descriptor or a
 * clock calls. One connection claims, the other settles, so that a decision waits for no claim.
 * Nothing in it waits for a server.
 *
 * The number of a claim is drawn anew every half of a claim's length, so that a row that is claimed
 * again after its claim lapsed has another number: an answer to the earlier claim changes nothing.
 */
#include "checker.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include "backoff.h"
#include "check_calls.h"
#include "check_metrics.h"
#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "link.h"
#include "logging.h"
#include "destination.h"
#include "schedule.h"

enum {
	POLL_FIRST_MS = 10, /* between claims that bring less than asked for */
	POLL_MAX_MS = 200,
	CALL_MS = 30000, /* a connection without an answer is given up after this time */
	FIGURES_MS = 15000,
	STATUS_MS = 100,
	LONGEST_WAIT_MS = 1000,
	SETTLE_ROWS = 2000,
	SETTLE_WAIT_MS = 3, /* wait for more settlements to send together */
	OPEN_AGAIN_MS = 10000,
	QUESTIONS_A_TURN = 256,
	GRACE_MS = 500,
	END_MS = 1500,
};

enum claim_call { CALL_NONE, CALL_CLAIM, CALL_FIGURES };

struct service {
	const struct transport_kind *kind;
	struct transport *transport; /* NULL: not open */
	int64_t open_at;             /* no attempt to open before this time */
	char error[512];             /* why */
};

/* A connection and the state of the statement on it. */
struct side {
	struct link link;
	struct backoff backoff;
	int64_t at, answer_by; /* at: send no sooner; answer_by: give up the connection */
	bool failing;
	bool lost; /* the connection was lost, and not made again since */
	char error[512];
};

struct checker {
	struct checker_options options;
	pthread_t thread;
	int wake_fd;
	atomic_bool stop_asked;

	/* of the thread */
	struct route *route;
	struct schedule *schedule;
	struct check_calls *calls;
	struct check_metrics *metrics;
	struct service *services;
	struct pollfd *polled;
	struct side claims, settles;
	enum claim_call call; /* under way */
	int *most, *came;
	int64_t claim, claim_drawn_at, claimed_at;
	int64_t poll_at, poll_ms, figures_at, status_at, stop_at;
	struct schedule_row *settling; /* rows under way, or to be sent again */
	bool settle_sent;
	struct schedule_row *apart; /* rows behind `settling` of a batch that was refused */
	bool more;                  /* there is something left to ask at once */

	pthread_mutex_t mutex; /* guards what follows */
	struct checker_status status;
};

static const char *checker_section(const struct checker *checker)
{
	return checker->options.lookback->name;
}

/* --- the connections ------------------------------------------------------------------------ */

static void side_init(struct side *side, const struct checker *checker, const char *what,
    const struct link_statement *statements)
{
	owned_text char *name =
	    xformat("outbox-relay lookback %s %s", checker_section(checker), what);

	link_init(&side->link, checker->options.lookback->postgres->dsn, name, statements);
	side->backoff = (struct backoff){
	    .first_ms = 50, .cap_ms = 2000, .jitter = 0.2, .seed = (uint64_t)clock_random()};
}

static void side_failed(
    struct checker *checker, struct side *side, int64_t now, const struct err *err)
{
	/* One warning for an outage, not one for each retry. */
	if (!side->failing)
		log_warn("lookback_statement_failed",
		    {"section", LOG_TEXT(checker_section(checker))},
		    {"what", LOG_TEXT(side == &checker->claims ? "claim" : "settle")},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence", LOG_TEXT("it is tried again; nothing is decided meanwhile")});
	side->failing = true;
	text_copy(side->error, sizeof side->error, err->message);
	side->at = now + backoff_next_ms(&side->backoff);
}

static void side_worked(struct checker *checker, struct side *side)
{
	if (side->failing)
		log_info("lookback_statement_works_again",
		    {"section", LOG_TEXT(checker_section(checker))},
		    {"what", LOG_TEXT(side == &checker->claims ? "claim" : "settle")});
	side->failing = false;
	side->error[0] = '\0';
	backoff_reset(&side->backoff);
}

static void side_lost(struct checker *checker, struct side *side, int64_t now)
{
	struct err err;

	err_set(&err, ERR_RETRY, "%s",
	    side->link.error[0] ? side->link.error : "the connection to Postgres was lost");
	side_failed(checker, side, now, &err);
	side->lost = true;
}

/*
 * Moves the connection on. True: an answer came, *ret_result or (NULL) *err. *ret_ready: something
 * may be sent. `busy`: a statement of ours is under way; it is lost with the connection.
 */
static bool side_step(struct checker *checker, struct side *side, int64_t now, bool *busy,
    bool *ret_ready, struct pg_result **ret_result, struct err *err)
{
	enum link_event event;
	bool done = false;

	*ret_ready = false;
	*ret_result = NULL;

	/* A peer that vanished sends no error: the statement would seem under way for ever. */
	if (*busy && side->link.pg && now >= side->answer_by) {
		err_set(err, ERR_RETRY, "%s does not answer", pg_place(side->link.pg));
		link_drop(&side->link, now, err);
	}

	event = link_step(&side->link, now);
	/* It may have taken effect: a claim ends by itself, and settlements are sent again. */
	if (event == LINK_LOST || (*busy && !side->link.pg)) {
		side_lost(checker, side, now);
		*busy = false;
		return false;
	}
	if (event == LINK_READY && side->lost) {
		side_worked(checker, side);
		side->lost = false;
	}

	if (event == LINK_ANSWER) {
		if (!pg_receive(side->link.pg, &done, ret_result, err)) {
			link_failed(&side->link, now, err);
			done = true;
		}
		if (!done)
			return false;
		*busy = false;
	}

	*ret_ready = now >= side->at && !*busy && side->link.pg && (event == LINK_READY || done) &&
		     pg_state(side->link.pg) == PG_IDLE;
	return done;
}

/* --- claims --------------------------------------------------------------------------------- */

static void take_claimed(struct checker *checker, int64_t now, const struct pg_result *result)
{
	const struct config_lookback *lookback = checker->options.lookback;
	bool full = false;

	fault_point("after_lookback_claim");
	memset(checker->came, 0, (size_t)lookback->types.count * sizeof *checker->came);
	for (int i = 0; i < pg_rows(result); i++) {
		const char *service;
		struct schedule_claimed claimed = check_calls_claimed(result, i, &service);
		struct destination route = destination_find(checker->route, checker->options.config,
		    lookback, lookback->types.items[claimed.type], service, claimed.url);

		claimed.claim = checker->claim;
		claimed.claimed_at = checker->claimed_at;
		checker->came[claimed.type]++;
		schedule_add(checker->schedule, now, &claimed, &route);
	}

	schedule_claim_over(checker->schedule, now, checker->most, checker->came);
	for (int i = 0; i < lookback->types.count; i++)
		full |= checker->most[i] > 0 && checker->came[i] >= checker->most[i];
	/* Claims follow each other fast while rows come; an idle section costs few queries. */
	if (pg_rows(result) > 0)
		checker->poll_ms = POLL_FIRST_MS;
	checker->poll_at = now + (full ? 0 : checker->poll_ms);
	checker->poll_ms = checker->poll_ms < POLL_MAX_MS / 2 ? checker->poll_ms * 2 : POLL_MAX_MS;
}

static void take_figures(struct checker *checker, const struct pg_result *result)
{
	for (int i = 0; i < pg_rows(result); i++) {
		struct check_type_figures figures = check_calls_type(result, i);

		check_metrics_type(checker->metrics, &figures);
	}
}

static void draw_claim(struct checker *checker, int64_t now)
{
	int64_t half = checker->options.lookback->claim_ms / 2;

	if (checker->claim == 0 || now - checker->claim_drawn_at >= half) {
		checker->claim = clock_random();
		checker->claim_drawn_at = now;
	}
}

/* Sends a statement, if there is one to be sent. */
static void send_claim(struct checker *checker, int64_t now)
{
	struct side *side = &checker->claims;
	struct err err;
	bool sent;

	/* Nobody would ask about the rows, and no other checker could claim them for a while. */
	if (checker->stop_at)
		return;

	if (now >= checker->poll_at && schedule_wants(checker->schedule, now, checker->most) > 0) {
		draw_claim(checker, now);
		checker->call = CALL_CLAIM;
		/* taken before the server's clock decides when the claim ends */
		checker->claimed_at = now;
		sent = check_calls_claim(
		    checker->calls, &side->link, checker->most, checker->claim, &err);
		fault_point("after_lookback_claim_sent");
	} else if (now >= checker->figures_at) {
		checker->call = CALL_FIGURES;
		checker->figures_at = now + FIGURES_MS;
		sent = check_calls_figures(checker->calls, &side->link, &err);
	} else {
		return;
	}

	side->answer_by = now + CALL_MS;
	if (!sent) {
		checker->call = CALL_NONE;
		link_drop(&side->link, now, &err);
		side_failed(checker, side, now, &err);
	}
}

static void step_claims(struct checker *checker, int64_t now)
{
	enum claim_call call = checker->call;
	bool busy = call != CALL_NONE, ready;
	struct err err;
	OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
	bool answered = side_step(checker, &checker->claims, now, &busy, &ready, &result, &err);

	if (!busy)
		checker->call = CALL_NONE;

	/* Nothing of such an answer is taken: a wrong type number would index no type. */
	if (result &&
	    !check_calls_usable(checker->calls,
		call == CALL_CLAIM ? CHECK_ANSWER_CLAIMS : CHECK_ANSWER_FIGURES, result, &err)) {
		link_drop(&checker->claims.link, now, &err);
		side_failed(checker, &checker->claims, now, &err);
		return;
	}
	if (answered && !result) {
		side_failed(checker, &checker->claims, now, &err);
		return;
	}

	if (answered) {
		side_worked(checker, &checker->claims);
		if (call == CALL_CLAIM)
			take_claimed(checker, now, result);
		else
			take_figures(checker, result);
	}
	if (ready)
		send_claim(checker, now);
}

/* --- settlements ---------------------------------------------------------------------------- */

static int count_schedule_rows(const struct schedule_row *row)
{
	int count = 0;

	for (; row; row = row->next)
		count++;
	return count;
}

static void log_parked_row(const struct checker *checker, const struct schedule_row *row)
{
	log_warn("lookback_parked", {"section", LOG_TEXT(checker_section(checker))},
	    {"type", LOG_TEXT(checker->options.lookback->types.items[row->type])},
	    {"id", LOG_TEXT(row->biz_id)}, {"error", LOG_TEXT(row->verdict->error)},
	    {"consequence", LOG_TEXT("an operator has to decide")});
}

static void take_settled(struct checker *checker, const struct pg_result *result)
{
	struct check_settled told = check_calls_settled(result);
	int parked = 0;

	fault_point("after_lookback_settle");
	for (int place = 1; checker->settling; place++) {
		struct schedule_row *row = checker->settling;

		checker->settling = row->next;
		/* A verdict that parks changes nothing if the claim of its row had ended. */
		if (check_calls_parked(result, parked) == place) {
			log_parked_row(checker, row);
			parked++;
		}
		schedule_release(checker->schedule, row);
	}
	check_metrics_settled(checker->metrics, &told, parked);
	/* Rows that a refused batch left apart go next, before the schedule gives more. */
	checker->settling = checker->apart;
	checker->apart = NULL;
}

/* Keeps the first half to be sent alone; the other half waits. */
static void split_settlements(struct checker *checker, int count)
{
	struct schedule_row *last = checker->settling, *rest;

	for (int i = 1; i < count / 2; i++)
		last = last->next;
	rest = last->next;
	last->next = NULL;
	for (last = rest; last->next; last = last->next)
		;
	last->next = checker->apart;
	checker->apart = rest;
}

/*
 * The database refuses the row although it was sent alone. A refused decision is settled as an
 * answer that decided nothing; a row that is refused again is left until its claim ends.
 */
static void give_up_row(struct checker *checker, int64_t now, const struct err *err)
{
	struct schedule_row *row = checker->settling;
	bool decided = row->verdict->decision;

	log_error("lookback_settle_refused", {"section", LOG_TEXT(checker_section(checker))},
	    {"type", LOG_TEXT(checker->options.lookback->types.items[row->type])},
	    {"id", LOG_TEXT(row->biz_id)}, {"error", LOG_TEXT(err->message)},
	    {"consequence", LOG_TEXT("it is undecided, and asked about again")});
	checker->settles.at = now;
	/*
	 * A decision comes only from an answer, so the row has a service. Without the decision the
	 * next call is due later, and a row that is refused every time is parked in the end.
	 */
	if (decided) {
		const struct check_verdict_id facts = {row->attempts, row->pendings, row->age_ms};
		const struct check_answer answer = {.failure = "database", .sent = true};
		uint64_t seed = (uint64_t)clock_random();

		*row->verdict =
		    check_verdict_of_answer(&checker->options.config->checks[row->service], &facts,
			CHECK_UNKNOWN, &answer, &seed);
		text_copy(row->verdict->error, sizeof row->verdict->error, err->message);
		return;
	}
	schedule_release(checker->schedule, row);
	checker->settling = checker->apart;
	checker->apart = NULL;
}

static void settle_failed(struct checker *checker, int64_t now, const struct err *err)
{
	int count = count_schedule_rows(checker->settling);

	side_failed(checker, &checker->settles, now, err);
	/*
	 * The rows stay and are sent again. If the lost statement took effect, they no longer have
	 * its claim: the repetition changes nothing.
	 */
	if (err->kind != ERR_FATAL && err->kind != ERR_FENCED)
		return;

	/* A row is refused, and not the database away: a smaller part is tried without a pause. */
	if (count > 1) {
		split_settlements(checker, count);
		checker->settles.at = now;
	} else {
		give_up_row(checker, now, err);
	}
}

static void send_settlements(struct checker *checker, int64_t now)
{
	struct side *side = &checker->settles;
	int64_t since;
	int count = schedule_settlements(checker->schedule, &since);
	struct err err;

	/*
	 * Rows of a failed statement are sent again first, as they are. New rows wait a moment for
	 * others, so that one transaction stores them all.
	 */
	if (!checker->settling) {
		if (count == 0 ||
		    (count < SETTLE_ROWS && now - since < SETTLE_WAIT_MS && !checker->stop_at))
			return;
		checker->settling = schedule_take(checker->schedule, SETTLE_ROWS);
	}
	side->answer_by = now + CALL_MS;
	fault_point("before_lookback_settle");
	checker->settle_sent =
	    check_calls_settle(checker->calls, &side->link, checker->settling, &err);
	fault_point("after_lookback_settle_sent");
	if (!checker->settle_sent) {
		link_drop(&side->link, now, &err);
		side_failed(checker, side, now, &err);
	}
}

static void step_settles(struct checker *checker, int64_t now)
{
	bool ready;
	struct err err;
	OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
	bool answered = side_step(
	    checker, &checker->settles, now, &checker->settle_sent, &ready, &result, &err);

	/* Rows may be released only after an answer that says they were stored. */
	if (result && !check_calls_usable(checker->calls, CHECK_ANSWER_SETTLED, result, &err)) {
		link_drop(&checker->settles.link, now, &err);
		settle_failed(checker, now, &err);
		return;
	}
	if (answered && !result) {
		settle_failed(checker, now, &err);
		return;
	}
	if (answered) {
		side_worked(checker, &checker->settles);
		take_settled(checker, result);
	}
	if (ready)
		send_settlements(checker, now);
}

/* --- questions ------------------------------------------------------------------------------ */

static bool open_service(struct checker *checker, int64_t now, int number)
{
	struct service *service = &checker->services[number];
	const struct config_check *check = &checker->options.config->checks[number];
	struct err err;

	/* Opening may block on files and the resolver: not for each question. */
	if (service->transport || now < service->open_at)
		return service->transport;
	service->kind = checker->options.transport(check->transport);
	service->transport = service->kind->open(check, &err);
	if (service->transport)
		return true;
	service->open_at = now + OPEN_AGAIN_MS;
	text_copy(service->error, sizeof service->error, err.message);
	log_error("lookback_service_unusable", {"section", LOG_TEXT(checker_section(checker))},
	    {"service", LOG_TEXT(check->name)}, {"error", LOG_TEXT(err.message)},
	    {"consequence", LOG_TEXT("the relay makes no calls there, and no attempt is used")});
	return false;
}

static void ask_service(struct checker *checker, int64_t now, struct schedule_question *question)
{
	struct service *service = &checker->services[question->service];
	struct err err;

	question->ask.biz_type = checker->options.lookback->types.items[question->type];
	if (!open_service(checker, now, question->service)) {
		schedule_refused(checker->schedule, now, question, service->error);
		return;
	}
	if (service->kind->ask(service->transport, &question->ask, &err)) {
		fault_point("after_lookback_question");
		return;
	}
	/*
	 * The transport has no room: the ids keep their place in the line. Any other error would
	 * come again, so these ids pause.
	 */
	if (err.kind == ERR_RETRY)
		schedule_put_back(checker->schedule, now, question);
	else
		schedule_refused(checker->schedule, now, question, err.message);
}

static void ask_all(struct checker *checker, int64_t now)
{
	int asked = 0;

	checker->more = false;

	/*
	 * Bounded, so that answers and settlements do not wait for thousands of questions; `more`
	 * makes the next turn begin at once.
	 */
	while (asked < QUESTIONS_A_TURN) {
		struct schedule_question *question = schedule_next(checker->schedule, now);

		if (!question)
			return;
		ask_service(checker, now, question);
		asked++;
	}
	checker->more = true;
}

static void hear_service(struct checker *checker, int number, int64_t now)
{
	struct service *service = &checker->services[number];
	struct check_answer *answer;

	service->kind->step(service->transport, now);
	while ((answer = service->kind->take(service->transport))) {
		struct schedule_question *question = answer->opaque;

		fault_point("after_lookback_answer");
		check_metrics_answer(checker->metrics, number, answer, question->ask.id_count);
		schedule_answered(checker->schedule, now, question, answer);
		service->kind->release(service->transport, answer);
	}
}

static void hear_all(struct checker *checker, int64_t now)
{
	for (int i = 0; i < checker->options.config->check_count; i++)
		if (checker->services[i].transport)
			hear_service(checker, i, now);
}

/* --- the loop ------------------------------------------------------------------------------- */

static void note_addresses(struct checker *checker)
{
	struct transport_addresses addresses;

	for (int i = 0; i < checker->options.config->check_count; i++) {
		const struct service *service = &checker->services[i];

		if (service->transport && service->kind->addresses &&
		    service->kind->addresses(service->transport, &addresses))
			check_metrics_addresses(checker->metrics, i, &addresses);
	}
}

static void note_checker_status(struct checker *checker, int64_t now)
{
	struct schedule_figures figures = schedule_figures(checker->schedule);
	const struct side *side = checker->settles.error[0] ? &checker->settles : &checker->claims;
	bool works = !checker->claims.failing && !checker->settles.failing &&
		     checker->claims.link.pg && checker->settles.link.pg;
	const char *error = side->error[0] ? side->error : side->link.error;
	struct schedule_host_figures failing;
	int tripped;

	/* The walk through all hosts and the lock cost too much for each turn. */
	if (now < checker->status_at)
		return;
	checker->status_at = now + STATUS_MS;
	tripped = check_metrics_note(checker->metrics, checker->schedule, now, &failing);
	note_addresses(checker);
	pthread_mutex_lock(&checker->mutex);
	checker->status.loop_ms = now;
	checker->status.works = works;
	text_copy(checker->status.error, sizeof checker->status.error, works ? "" : error);
	checker->status.rows = figures.rows;
	checker->status.in_flight = figures.in_flight;
	checker->status.breakers_open = tripped;
	snprintf(checker->status.last_error, sizeof checker->status.last_error, "%s%s%s",
	    tripped ? failing.name : "", tripped ? ": " : "", tripped ? failing.error : "");
	pthread_mutex_unlock(&checker->mutex);
}

static void add_side(struct pollfd *polled, int *count, const struct side *side, int64_t *due)
{
	int64_t wait = link_wait(&side->link);

	if (side->link.pg && pg_fd(side->link.pg) >= 0)
		polled[(*count)++] =
		    (struct pollfd){.fd = pg_fd(side->link.pg), .events = pg_events(side->link.pg)};
	if (wait < *due)
		*due = wait;
	/* A time in the past would make the loop spin: then only the descriptor counts. */
	if (side->at < *due && side->link.pg && side->at > clock_ms())
		*due = side->at;
}

static void bring_forward(int64_t *due, int64_t at)
{
	if (at < *due)
		*due = at;
}

/*
 * Could a claim be sent if the schedule wants one? If not, the deadline of a claim must not wake
 * the loop.
 */
static bool may_claim(const struct checker *checker, int64_t now)
{
	const struct side *side = &checker->claims;

	return checker->call == CALL_NONE && !checker->stop_at && now >= checker->poll_at &&
	       now >= side->at && side->link.pg && pg_state(side->link.pg) == PG_IDLE;
}

/* The time of the next work that no descriptor announces. */
static int64_t next_due(struct checker *checker, int64_t now)
{
	int64_t due = now + LONGEST_WAIT_MS, since;

	bring_forward(&due, checker->status_at);
	bring_forward(&due, schedule_deadline(checker->schedule, may_claim(checker, now)));
	/* once poll_at has passed, only an event or a deadline of the schedule makes room */
	if (checker->poll_at > now && checker->call == CALL_NONE)
		bring_forward(&due, checker->poll_at);
	/* Rows that waited so long already are sent, or wait for the connection. */
	if (!checker->settling && schedule_settlements(checker->schedule, &since) > 0 &&
	    since + SETTLE_WAIT_MS > now)
		bring_forward(&due, since + SETTLE_WAIT_MS);
	if (checker->more)
		due = now;
	return due;
}

static void wait_for_checker_events(struct checker *checker)
{
	int64_t now = clock_ms(), due = next_due(checker, now), left;
	struct pollfd *polled = checker->polled;
	int count = 0;

	polled[count++] = (struct pollfd){.fd = checker->wake_fd, .events = POLLIN};
	add_side(polled, &count, &checker->claims, &due);
	add_side(polled, &count, &checker->settles, &due);
	for (int i = 0; i < checker->options.config->check_count; i++) {
		const struct service *service = &checker->services[i];

		if (!service->transport)
			continue;
		polled[count++] =
		    (struct pollfd){.fd = service->kind->fd(service->transport), .events = POLLIN};
		bring_forward(&due, service->kind->deadline(service->transport));
	}
	left = due - clock_ms();
	if (left > 0)
		poll(polled, (nfds_t)count, (int)left);
}

static bool has_settled_all(struct checker *checker)
{
	int64_t since;

	return !checker->settling && schedule_settlements(checker->schedule, &since) == 0;
}

static bool has_ended(struct checker *checker, int64_t now)
{
	bool unreachable = !checker->settles.link.pg || checker->settles.failing;

	if (!checker->stop_at)
		return false;
	/* An answer on its way is worth a moment: without it the business would be called again. */
	if (schedule_figures(checker->schedule).in_flight > 0 && now - checker->stop_at < GRACE_MS)
		return false;
	return has_settled_all(checker) || unreachable || now - checker->stop_at >= END_MS;
}

static void note_stop(struct checker *checker, int64_t now)
{
	eventfd_t ignored;

	if (checker->stop_at || !atomic_load(&checker->stop_asked))
		return;
	checker->stop_at = now;
	schedule_drain(checker->schedule, now);
	/* otherwise the descriptor stays readable for ever */
	if (eventfd_read(checker->wake_fd, &ignored) != 0)
		log_debug("already_told", {"section", LOG_TEXT(checker_section(checker))});
}

static void end_checker(struct checker *checker)
{
	pthread_mutex_lock(&checker->mutex);
	checker->status.ended = true;
	checker->status.works = false;
	pthread_mutex_unlock(&checker->mutex);
	if (checker->options.event_fd >= 0 && eventfd_write(checker->options.event_fd, 1) != 0)
		log_debug("already_told", {"section", LOG_TEXT(checker_section(checker))});
}

static void *run_checker(void *context)
{
	struct checker *checker = context;

	pthread_setname_np(pthread_self(), "lookback-check");
	for (;;) {
		int64_t now = clock_ms();

		note_stop(checker, now);
		/*
		 * Answers first: they free room for the claim and the questions of this turn, and
		 * settlements go out last with all of them.
		 */
		hear_all(checker, now);
		step_claims(checker, now);
		ask_all(checker, now);
		step_settles(checker, now);
		note_checker_status(checker, now);
		if (has_ended(checker, now))
			break;
		wait_for_checker_events(checker);
	}
	end_checker(checker);
	return NULL;
}

/* --- start and stop ------------------------------------------------------------------------- */

static void release_rows(struct checker *checker, struct schedule_row *row)
{
	while (row) {
		struct schedule_row *next = row->next;

		schedule_release(checker->schedule, row);
		row = next;
	}
}

static void checker_free(struct checker *checker)
{
	link_finish(&checker->claims.link);
	link_finish(&checker->settles.link);

	/* Transports close before the schedule goes: their requests point into its questions. */
	for (int i = 0; i < checker->options.config->check_count; i++)
		if (checker->services[i].transport)
			checker->services[i].kind->close(checker->services[i].transport);

	release_rows(checker, checker->settling);
	release_rows(checker, checker->apart);
	schedule_destroy(checker->schedule);
	route_destroy(checker->route);
	check_calls_destroy(checker->calls);
	check_metrics_destroy(checker->metrics);

	if (checker->wake_fd >= 0)
		close(checker->wake_fd);
	pthread_mutex_destroy(&checker->mutex);

	free(checker->services);
	free(checker->polled);
	free(checker->most);
	free(checker->came);
	free(checker);
}

/* Warns if an answer may come after the end of its claim: such an answer is ignored. */
static void warn_of_short_claim(const struct checker *checker)
{
	const struct config *config = checker->options.config;

	for (int i = 0; i < config->check_count; i++)
		if (config->checks[i].timeout_ms > checker->options.lookback->claim_ms / 4 * 3)
			log_warn("lookback_claim_short",
			    {"section", LOG_TEXT(checker_section(checker))},
			    {"service", LOG_TEXT(config->checks[i].name)},
			    {"claim_ms", LOG_INT(checker->options.lookback->claim_ms)},
			    {"timeout_ms", LOG_INT(config->checks[i].timeout_ms)},
			    {"consequence",
				LOG_TEXT("slow answers are ignored; make claim longer than "
					 "4/3 of each timeout")});
}

/* Shows the host of the section's own service. */
static void show_host(struct checker *checker)
{
	const struct config_lookback *lookback = checker->options.lookback;
	struct destination route = destination_find(checker->route, checker->options.config,
	    lookback, lookback->types.items[0], NULL, NULL);

	if (route.service >= 0)
		check_metrics_host(checker->metrics, route.host);
}

static void make_checker_parts(struct checker *checker)
{
	const struct config *config = checker->options.config;
	const struct config_lookback *lookback = checker->options.lookback;
	size_t types = (size_t)lookback->types.count;
	const struct schedule_settings settings = {
	    .services = config->checks,
	    .service_count = config->check_count,
	    .type_count = lookback->types.count,
	    .in_flight = lookback->in_flight,
	    .claim_ms = lookback->claim_ms,
	    .seed = (uint64_t)clock_random(),
	};

	checker->schedule = schedule_create(&settings, clock_ms());
	checker->calls = check_calls_create(lookback);
	checker->metrics = check_metrics_create(config, lookback);
	show_host(checker);
	checker->services = xcalloc((size_t)config->check_count, sizeof *checker->services);
	/* Besides the transports: wake_fd and the two connections. */
	checker->polled = xcalloc((size_t)config->check_count + 3, sizeof *checker->polled);
	checker->most = xcalloc(types, sizeof *checker->most);
	checker->came = xcalloc(types, sizeof *checker->came);
	checker->poll_ms = POLL_FIRST_MS;
	side_init(&checker->claims, checker, "claims", check_calls_claims(checker->calls));
	side_init(&checker->settles, checker, "settles", check_calls_settles(checker->calls));
}

struct checker *checker_start(const struct checker_options *options, struct err *err)
{
	struct route *route = route_create(options->config, err);
	struct checker *checker;
	int error;

	if (!route)
		return NULL;
	checker = xcalloc(1, sizeof *checker);
	checker->options = *options;
	checker->route = route;
	checker->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	checker->status.loop_ms = clock_ms();
	pthread_mutex_init(&checker->mutex, NULL);
	make_checker_parts(checker);
	warn_of_short_claim(checker);
	error = pthread_create(&checker->thread, NULL, run_checker, checker);
	if (error == 0)
		return checker;
	err_set(err, ERR_RETRY, "no thread for the checker of [lookback \"%s\"]: %s",
	    options->lookback->name, strerror(error));
	checker_free(checker);
	return NULL;
}

void checker_stop(struct checker *checker)
{
	atomic_store(&checker->stop_asked, true);
	if (eventfd_write(checker->wake_fd, 1) != 0)
		log_debug("already_told", {"section", LOG_TEXT(checker_section(checker))});
}

void checker_join(struct checker *checker)
{
	if (!checker)
		return;
	pthread_join(checker->thread, NULL);
	checker_free(checker);
}

struct checker_status checker_status(struct checker *checker)
{
	struct checker_status status;

	pthread_mutex_lock(&checker->mutex);
	status = checker->status;
	pthread_mutex_unlock(&checker->mutex);
	return status;
}
