/*
 * One thread that sends the parcels of a dispatch over HTTP. Begin at run_http_sender; the calls of
 * other threads follow it.
 */
#include "http_sender.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include "cleanup.h"
#include "clock.h"
#include "http_client.h"
#include "config_credentials.h"
#include "http_peer.h"
#include "logging.h"

enum {
	MOST_HEADER_BYTES = 32 << 10,
	LONGEST_WAIT_MS = 1000,
	REST_MS = 1000, /* a message that is submitted at rest comes again after that */
	ENDS = 256,     /* passed to the inbox in one call */
};

/* Messages on their way from http_sender_submit to the thread. */
struct arrival {
	struct arrival *next;
	size_t count;
	const struct outbox_inbox_message *messages[];
};

struct http_sender {
	struct http_sender_options options;
	pthread_t thread;
	int wake_fd;

	/* used by the thread alone, once it runs */
	struct http_peer peer;
	struct http_client *client;
	struct http_credentials *credentials;
	bool waits_for_token;
	struct dispatch *dispatch;
	enum breaker_state told;            /* in the log */
	struct outbox_inbox_end ends[ENDS]; /* of this turn; tell_turn_ends passes them on */
	size_t end_count;

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t rested; /* it has become idle */
	struct arrival *first, *last;
	bool resting, idle, ending;
	int64_t abandon_at; /* resting */
	struct http_sender_status status;
};

/* --- settings ------------------------------------------------------------------------------- */

static bool refuse_sender_key(
    const struct config_deliver *deliver, struct err *err, const char *key, const char *why)
{
	return err_set(err, ERR_CONFIG, "%s: [deliver \"%s\"] %s: %s", deliver->origin,
	    deliver->name, key, why);
}

/* NULL (ERR_CONFIG): one of their keys is wrong. */
static struct http_credentials *open_sender_credentials(
    const struct config_deliver *deliver, struct err *err)
{
	const char *key;
	struct err why;
	struct http_credentials *credentials =
	    config_credentials_open(&deliver->credentials, "deliver", deliver->name, &key, &why);

	if (!credentials)
		refuse_sender_key(deliver, err, key, why.message);
	return credentials;
}

/* To be finished in any case. */
static bool set_sender_peer(
    struct http_peer *peer, const struct config_deliver *deliver, struct err *err)
{
	const struct http_peer_texts texts = {.url = deliver->url,
	    .networks = deliver->networks,
	    .secret = deliver->secret,
	    .old_secret = deliver->old_secret,
	    .tls_ca = deliver->tls_ca,
	    .tls_certificate = deliver->tls_certificate,
	    .tls_key = deliver->tls_key};
	const char *key;
	struct err why;

	if (!http_peer_init(peer, &texts, &key, &why))
		return refuse_sender_key(deliver, err, key, why.message);
	return deliver->url[0] || refuse_sender_key(deliver, err, "url",
				      "it is empty; say where messages are posted to");
}

bool http_sender_check(const struct config_deliver *deliver, struct err *err)
{
	struct http_peer peer;
	struct http_credentials *credentials = NULL;

	if (set_sender_peer(&peer, deliver, err))
		credentials = open_sender_credentials(deliver, err);
	http_peer_finish(&peer);
	http_credentials_close(credentials);
	return credentials;
}

static struct http_client *new_client(const struct http_sender *sender, struct err *err)
{
	int most = (int)sender->options.deliver->connections +
		   http_credentials_in_flight(sender->credentials);
	const struct http_client_settings settings = {.max_in_flight = most,
	    .max_connections = most,
	    .max_host_connections = most,
	    .user_agent = "outbox-relay/" RELAY_VERSION,
	    .networks = &sender->peer.networks};

	return http_client_create(&settings, err);
}

/* --- ends ----------------------------------------------------------------------------------- */

static void tell_turn_ends(struct http_sender *sender)
{
	if (sender->end_count > 0)
		sender->options.finish(sender->options.context, sender->ends, sender->end_count);
	sender->end_count = 0;
}

static bool needs_no_reason(const struct outbox_inbox_end *ends, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (ends[i].result != OUTBOX_INBOX_DONE || ends[i].reason)
			return false;
	return true;
}

/*
 * The ends of handled messages go to the inbox together, after the turn: each call may wake the
 * loop of the inbox, which costs more than all the rest of an end. A reason is valid only during
 * the call.
 */
static void note_ends(void *context, const struct outbox_inbox_end *ends, size_t count)
{
	struct http_sender *sender = context;

	if (sender->end_count + count > ENDS || !needs_no_reason(ends, count)) {
		tell_turn_ends(sender);
		sender->options.finish(sender->options.context, ends, count);
		return;
	}

	memcpy(sender->ends + sender->end_count, ends, count * sizeof *ends);
	sender->end_count += count;
}

static bool holds_message(void *context, uint64_t ticket)
{
	const struct http_sender *sender = context;

	return sender->options.holds(sender->options.context, ticket);
}

static struct dispatch *new_dispatch(struct http_sender *sender)
{
	const struct config_deliver *deliver = sender->options.deliver;
	bool has_credentials = http_credentials_any(sender->credentials);
	const struct dispatch_settings settings = {
	    .wire = {.form = deliver->form,
		.mode = deliver->mode,
		.defaults = {deliver->event_source, deliver->event_type},
		.has_credentials = has_credentials},
	    .judge = {.form = deliver->form,
		.retry_after_max_ms = deliver->retry_after_max_ms,
		.has_credentials = has_credentials},
	    .connections = deliver->connections,
	    .rate = deliver->rate,
	    .breaker_failures = deliver->breaker_failures,
	    .breaker_pause_ms = deliver->breaker_pause_ms,
	    .holds = holds_message,
	    .finish = note_ends,
	    .context = sender};

	return dispatch_create(&settings, clock_ms());
}

/* --- requests ------------------------------------------------------------------------------- */

static struct http_limits limits_of(const struct config_deliver *deliver)
{
	return (struct http_limits){.timeout_ms = (int)deliver->timeout_ms,
	    .connect_timeout_ms = (int)deliver->connect_timeout_ms,
	    .max_body = (size_t)deliver->max_answer,
	    .max_headers = MOST_HEADER_BYTES};
}

/* Credentials and signature follow the headers of the request, which does not count them. */
static bool send_parcel(struct http_sender *sender, struct parcel *parcel, struct err *err)
{
	const struct config_deliver *deliver = sender->options.deliver;
	struct deliver_request *request = &parcel->request;
	struct http_signature signature = {0};
	size_t count = request->header_count;
	bool sent;

	http_credentials_add(sender->credentials, request->headers, &count);
	sent =
	    http_peer_sign(&sender->peer, request->name, clock_wall_us() / 1000000, request->body,
		request->body_length, &signature, request->headers, &count, err) &&
	    http_client_send(sender->client,
		&(struct http_request){.method = HTTP_POST,
		    .protocol = HTTP_1_1,
		    .url = deliver->url,
		    .headers = request->headers,
		    .header_count = count,
		    .body = request->body,
		    .body_length = request->body_length,
		    .tls = &sender->peer.tls,
		    .limits = limits_of(deliver),
		    .opaque = parcel},
		err);

	http_signature_finish(&signature);
	return sent;
}

/* Without a token no request goes out, which says as much about the business as an outage. */
static void fail_due_parcels(struct http_sender *sender, int64_t now, const char *error)
{
	const struct deliver_response said = {
	    .failure = "token", .error = error, .retry_after_ms = -1};
	struct parcel *parcel;

	while ((parcel = dispatch_next(sender->dispatch, now))) {
		const char *label = dispatch_answered(sender->dispatch, now, parcel, &said);

		deliver_metrics_answer(sender->options.metrics, label, false, 0);
	}
}

static void send_due_parcels(struct http_sender *sender, int64_t now)
{
	enum http_access access = HTTP_ACCESS_READY;
	const char *error = "";
	struct parcel *parcel;
	struct err err;

	/* Without messages no token is requested. */
	if (dispatch_figures(sender->dispatch, now).messages > 0)
		access = http_credentials_access(sender->credentials, sender->client, now, &error);
	sender->waits_for_token = access == HTTP_ACCESS_WAITS;
	if (access == HTTP_ACCESS_FAILED)
		fail_due_parcels(sender, now, error);
	if (access != HTTP_ACCESS_READY)
		return;
	while ((parcel = dispatch_next(sender->dispatch, now))) {
		if (send_parcel(sender, parcel, &err))
			continue;
		/* No room in the client: it has no room for later parcels either. */
		if (err.kind == ERR_RETRY) {
			dispatch_put_back(sender->dispatch, parcel, now);
			return;
		}
		dispatch_refused(sender->dispatch, parcel, now, err.message);
	}
}

static void take_http_answers(struct http_sender *sender, int64_t now)
{
	struct http_response *response;

	http_client_step(sender->client, now);
	while ((response = http_client_take(sender->client))) {
		if (http_credentials_take(sender->credentials, response, now)) {
			http_client_release(sender->client, response);
			continue;
		}
		if (response->status == 401)
			http_credentials_refused(sender->credentials, now);

		const struct deliver_response said = {.failure = response->failure,
		    .error = response->error,
		    .tried = response->sent,
		    .status = response->status,
		    .retry_after_ms = http_response_retry_after_ms(response, clock_wall_us()),
		    .encoding = http_response_encoding(response),
		    .body = response->body,
		    .length = response->body_length};
		const char *label =
		    dispatch_answered(sender->dispatch, now, response->opaque, &said);

		deliver_metrics_answer(
		    sender->options.metrics, label, response->sent, response->total_us);
		http_client_release(sender->client, response);
	}
}

/* --- the loop ------------------------------------------------------------------------------- */

static void add_arrivals(struct http_sender *sender, struct arrival *arrival)
{
	while (arrival) {
		struct arrival *next = arrival->next;

		/* the inbox hands over several at once, and here each has a request of its own */
		size_t together =
		    sender->options.deliver->form == DELIVER_SINGLE ? 1 : arrival->count;
		for (size_t i = 0; i < arrival->count; i += together)
			dispatch_add(sender->dispatch, arrival->messages + i, together);
		free(arrival);
		arrival = next;
	}
}

/* Abandons the requests in flight, and closes their connections. */
static void abandon_requests(struct http_sender *sender, int64_t now)
{
	struct err err;
	struct http_client *client = new_client(sender, &err);

	if (!client) {
		log_error("deliver_cannot_abandon",
		    {"section", LOG_TEXT(sender->options.deliver->name)},
		    {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("requests under way are waited for")});
		return;
	}

	/* First the client, whose requests point into the parcels; then their ends. */
	http_client_destroy(sender->client);
	http_credentials_forget_request(sender->credentials);
	sender->client = client;
	dispatch_abandon(sender->dispatch, now, "no answer came before the end");
}

/* Logs only changes from or to closed: for people, half-open is open. */
static void tell_breaker(struct http_sender *sender, enum breaker_state state, const char *error)
{
	const char *name = sender->options.deliver->name;
	bool was_closed = sender->told == BREAKER_CLOSED;

	sender->told = state;
	if (was_closed == (state == BREAKER_CLOSED))
		return;
	if (state == BREAKER_CLOSED)
		log_info("deliver_breaker_closed", {"section", LOG_TEXT(name)},
		    {"consequence", LOG_TEXT("it answers, and gets messages again")});
	else
		log_warn("deliver_breaker_opened", {"section", LOG_TEXT(name)},
		    {"error", LOG_TEXT(error)},
		    {"consequence",
			LOG_TEXT("it failed too often in a row: one request at a time finds out "
				 "when it answers again, and no other attempt is spent")});
}

/* The fields that the mutex guards, copied at the beginning of a turn. */
struct turn {
	struct arrival *arrivals;
	bool resting, ending;
	int64_t abandon_at;
};

static struct turn begin_sender_turn(struct http_sender *sender, int64_t now)
{
	struct turn turn;
	eventfd_t ignored;

	(void)eventfd_read(sender->wake_fd, &ignored); /* fails when nobody called */
	pthread_mutex_lock(&sender->mutex);
	turn = (struct turn){sender->first, sender->resting, sender->ending, sender->abandon_at};
	sender->first = sender->last = NULL;
	sender->status.loop_ms = now;
	pthread_mutex_unlock(&sender->mutex);
	return turn;
}

static void end_sender_turn(struct http_sender *sender, const struct turn *turn, int64_t now)
{
	struct dispatch_figures figures = dispatch_figures(sender->dispatch, now);
	const char *error = dispatch_error(sender->dispatch);

	tell_turn_ends(sender);

	tell_breaker(sender, figures.breaker, error);
	pthread_mutex_lock(&sender->mutex);
	sender->status.figures = figures;
	text_copy(sender->status.error, sizeof sender->status.error, error);
	/* Idle only after a turn that was drained, if nobody has called http_sender_work since. */
	if (turn->resting && sender->resting && figures.messages == 0 && !sender->first) {
		sender->idle = true;
		pthread_cond_broadcast(&sender->rested);
	}
	pthread_mutex_unlock(&sender->mutex);
}

static void wait_for_http_events(const struct http_sender *sender, const struct turn *turn)
{
	struct pollfd polled[] = {{.fd = sender->wake_fd, .events = POLLIN},
	    {.fd = http_client_fd(sender->client), .events = POLLIN}};
	int64_t now = clock_ms(), due = now + LONGEST_WAIT_MS;
	int64_t deadlines[] = {http_client_deadline(sender->client),
	    sender->waits_for_token ? INT64_MAX : dispatch_deadline(sender->dispatch, now),
	    turn->resting && turn->abandon_at > now ? turn->abandon_at : INT64_MAX};

	for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++)
		if (deadlines[i] < due)
			due = deadlines[i];
	poll(polled, 2, due > now ? (int)(due - now) : 0);
}

static void *run_http_sender(void *context)
{
	struct http_sender *sender = context;

	pthread_setname_np(pthread_self(), "http-sender");
	for (;;) {
		int64_t now = clock_ms();
		struct turn turn = begin_sender_turn(sender, now);

		add_arrivals(sender, turn.arrivals);
		/* Answers come before sending: they free connections, and may open the breaker. */
		take_http_answers(sender, now);
		if (turn.resting)
			dispatch_drain(sender->dispatch, REST_MS);
		else
			send_due_parcels(sender, now);
		if (turn.resting && now >= turn.abandon_at &&
		    dispatch_figures(sender->dispatch, now).in_flight > 0)
			abandon_requests(sender, now);
		end_sender_turn(sender, &turn, now);
		if (turn.ending)
			return NULL;
		wait_for_http_events(sender, &turn);
	}
}

/* --- from other threads --------------------------------------------------------------------- */

static void wake_sender(struct http_sender *sender)
{
	if (eventfd_write(sender->wake_fd, 1) != 0)
		log_debug("already_told", {"section", LOG_TEXT(sender->options.deliver->name)});
}

static struct arrival *new_arrival(const struct outbox_inbox_message *const *messages, size_t count)
{
	struct arrival *arrival = xmalloc(sizeof *arrival + count * sizeof *messages);

	*arrival = (struct arrival){.count = count};
	memcpy(arrival->messages, messages, count * sizeof *messages);
	return arrival;
}

static void end_unsent(
    struct http_sender *sender, const struct outbox_inbox_message *const *messages, size_t count)
{
	owned_text struct outbox_inbox_end *ends = xcalloc(count, sizeof *ends);

	for (size_t i = 0; i < count; i++)
		ends[i] = (struct outbox_inbox_end){
		    messages[i]->ticket, OUTBOX_INBOX_WAIT, "sending has stopped", REST_MS};
	sender->options.finish(sender->options.context, ends, count);
}

void http_sender_submit(
    struct http_sender *sender, const struct outbox_inbox_message *const *messages, size_t count)
{
	struct arrival *arrival = new_arrival(messages, count);
	bool resting, first;

	pthread_mutex_lock(&sender->mutex);
	/* At rest nothing is queued: http_sender_rest counts on that when it returns. */
	resting = sender->resting;
	first = !sender->first;
	if (!resting && first)
		sender->first = arrival;
	else if (!resting)
		sender->last->next = arrival;
	if (!resting)
		sender->last = arrival;
	pthread_mutex_unlock(&sender->mutex);
	if (resting) {
		end_unsent(sender, messages, count);
		free(arrival);
	} else if (first) {
		wake_sender(sender);
	}
}

void http_sender_rest(struct http_sender *sender, int64_t drain_ms)
{
	pthread_mutex_lock(&sender->mutex);
	sender->resting = true;
	sender->idle = false;
	sender->abandon_at = clock_ms() + drain_ms;
	wake_sender(sender);
	while (!sender->idle)
		pthread_cond_wait(&sender->rested, &sender->mutex);
	pthread_mutex_unlock(&sender->mutex);
}

void http_sender_work(struct http_sender *sender)
{
	pthread_mutex_lock(&sender->mutex);
	sender->resting = false;
	pthread_mutex_unlock(&sender->mutex);
}

struct http_sender_status http_sender_status(struct http_sender *sender)
{
	struct http_sender_status status;

	pthread_mutex_lock(&sender->mutex);
	status = sender->status;
	pthread_mutex_unlock(&sender->mutex);
	return status;
}

/* --- life ----------------------------------------------------------------------------------- */

static void free_http_sender(struct http_sender *sender)
{
	http_client_destroy(sender->client);
	http_credentials_close(sender->credentials);
	dispatch_destroy(sender->dispatch);
	http_peer_finish(&sender->peer);
	if (sender->wake_fd >= 0)
		close(sender->wake_fd);
	pthread_cond_destroy(&sender->rested);
	pthread_mutex_destroy(&sender->mutex);
	free(sender);
}

static bool start_sender_thread(struct http_sender *sender, struct err *err)
{
	int error;

	sender->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (sender->wake_fd < 0)
		return err_set(err, ERR_FATAL, "no eventfd: %s", strerror(errno));
	sender->status.loop_ms = clock_ms();
	error = pthread_create(&sender->thread, NULL, run_http_sender, sender);
	return error == 0 || err_set(err, ERR_RETRY, "no thread for [deliver \"%s\"]: %s",
				 sender->options.deliver->name, strerror(error));
}

static bool set_up_sender(struct http_sender *sender, struct err *err)
{
	const struct config_deliver *deliver = sender->options.deliver;

	if (!set_sender_peer(&sender->peer, deliver, err))
		return false;
	sender->credentials = open_sender_credentials(deliver, err);
	if (!sender->credentials)
		return false;
	sender->dispatch = new_dispatch(sender);
	sender->client = new_client(sender, err);
	return sender->client && start_sender_thread(sender, err);
}

struct http_sender *http_sender_start(const struct http_sender_options *options, struct err *err)
{
	struct http_sender *sender = xcalloc(1, sizeof *sender);

	sender->options = *options;
	sender->wake_fd = -1;
	pthread_mutex_init(&sender->mutex, NULL);
	pthread_cond_init(&sender->rested, NULL);
	if (set_up_sender(sender, err))
		return sender;
	free_http_sender(sender);
	return NULL;
}

void http_sender_stop(struct http_sender *sender)
{
	if (!sender)
		return;
	pthread_mutex_lock(&sender->mutex);
	sender->ending = true;
	pthread_mutex_unlock(&sender->mutex);
	wake_sender(sender);
	pthread_join(sender->thread, NULL);
	free_http_sender(sender);
}
