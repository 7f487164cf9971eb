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
#include "http_peer.h"
#include "logging.h"

enum {
	MOST_HEADER_BYTES = 32 << 10,
	LONGEST_WAIT_MS = 1000,
	REST_MS = 1000, /* what comes while it rests comes again after that */
};

/* Messages on their way from courier_hand to the thread. */
struct arrival {
	struct arrival *next;
	size_t count;
	const struct outbox_inbox_message *messages[];
};

struct courier {
	struct courier_options options;
	pthread_t thread;
	int wake_fd;

	/* of the thread, once it runs */
	struct http_peer peer;
	struct http_client *client;
	struct dispatch *dispatch;
	enum breaker_state told; /* in the log */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t rested; /* it has become idle */
	struct arrival *first, *last;
	bool resting, idle, ending;
	int64_t abandon_at; /* resting */
	struct courier_status status;
};

/* --- settings ------------------------------------------------------------------------------- */

static bool refuse(
    const struct config_deliver *deliver, struct err *err, const char *key, const char *why)
{
	return err_set(err, ERR_CONFIG, "%s: [deliver \"%s\"] %s: %s", deliver->origin,
	    deliver->name, key, why);
}

/* To be finished in any case. */
static bool set_peer(struct http_peer *peer, const struct config_deliver *deliver, struct err *err)
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
		return refuse(deliver, err, key, why.message);
	return deliver->url[0] ||
	       refuse(deliver, err, "url", "it is empty; say where messages are posted to");
}

bool courier_check(const struct config_deliver *deliver, struct err *err)
{
	struct http_peer peer;
	bool good = set_peer(&peer, deliver, err);

	http_peer_finish(&peer);
	return good;
}

static struct http_client *new_client(const struct courier *courier, struct err *err)
{
	int most = (int)courier->options.deliver->connections;
	const struct http_client_settings settings = {.max_in_flight = most,
	    .max_connections = most,
	    .max_host_connections = most,
	    .user_agent = "outbox-relay/" RELAY_VERSION,
	    .networks = &courier->peer.networks};

	return http_client_create(&settings, err);
}

static struct dispatch *new_dispatch(const struct courier *courier)
{
	const struct config_deliver *deliver = courier->options.deliver;
	const struct dispatch_settings settings = {
	    .wire = {deliver->form, deliver->mode, {deliver->event_source, deliver->event_type}},
	    .judge = {deliver->form, deliver->retry_after_max_ms},
	    .connections = deliver->connections,
	    .rate = deliver->rate,
	    .breaker_failures = deliver->breaker_failures,
	    .breaker_pause_ms = deliver->breaker_pause_ms,
	    .holds = courier->options.holds,
	    .finish = courier->options.finish,
	    .context = courier->options.context};

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

/* The signature's headers stand behind those of the request, and are not counted there. */
static bool send_parcel(struct courier *courier, struct parcel *parcel, struct err *err)
{
	const struct config_deliver *deliver = courier->options.deliver;
	struct deliver_request *request = &parcel->request;
	struct http_signature signature = {0};
	size_t count = request->header_count;
	bool sent =
	    http_peer_sign(&courier->peer, request->name, clock_wall_us() / 1000000, request->body,
		request->body_length, &signature, request->headers, &count, err) &&
	    http_client_send(courier->client,
		&(struct http_request){.method = HTTP_POST,
		    .protocol = HTTP_1_1,
		    .url = deliver->url,
		    .headers = request->headers,
		    .header_count = count,
		    .body = request->body,
		    .body_length = request->body_length,
		    .tls = &courier->peer.tls,
		    .limits = limits_of(deliver),
		    .opaque = parcel},
		err);

	http_signature_finish(&signature);
	return sent;
}

static void send_all(struct courier *courier, int64_t now)
{
	struct parcel *parcel;
	struct err err;

	while ((parcel = dispatch_next(courier->dispatch, now))) {
		if (send_parcel(courier, parcel, &err))
			continue;
		if (err.kind == ERR_RETRY) {
			dispatch_put_back(courier->dispatch, parcel, now);
			return;
		}
		dispatch_refused(courier->dispatch, parcel, now, err.message);
	}
}

static void take_answers(struct courier *courier, int64_t now)
{
	struct http_response *response;

	http_client_step(courier->client, now);
	while ((response = http_client_take(courier->client))) {
		const struct deliver_response said = {.failure = response->failure,
		    .error = response->error,
		    .tried = response->sent,
		    .status = response->status,
		    .retry_after_ms = http_response_retry_after_ms(response, clock_wall_us()),
		    .body = response->body,
		    .length = response->body_length};
		const char *label =
		    dispatch_answered(courier->dispatch, now, response->opaque, &said);

		deliver_metrics_answer(
		    courier->options.metrics, label, response->sent, response->total_us);
		http_client_release(courier->client, response);
	}
}

/* --- the loop ------------------------------------------------------------------------------- */

static void add_arrivals(struct courier *courier, struct arrival *arrival)
{
	while (arrival) {
		struct arrival *next = arrival->next;

		dispatch_add(courier->dispatch, arrival->messages, arrival->count);
		free(arrival);
		arrival = next;
	}
}

/* What is under way when the time to rest has come; its connections go with it. */
static void abandon(struct courier *courier, int64_t now)
{
	struct err err;
	struct http_client *client = new_client(courier, &err);

	if (!client) {
		log_error("deliver_cannot_abandon",
		    {"section", LOG_TEXT(courier->options.deliver->name)},
		    {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("requests under way are waited for")});
		return;
	}
	http_client_destroy(courier->client);
	courier->client = client;
	dispatch_abandon(courier->dispatch, now, "no answer came before the end");
}

/* Half-open is open as far as people are concerned. */
static void tell_breaker(struct courier *courier, enum breaker_state state)
{
	const char *name = courier->options.deliver->name;
	bool was_closed = courier->told == BREAKER_CLOSED;

	courier->told = state;
	if (was_closed == (state == BREAKER_CLOSED))
		return;
	if (state == BREAKER_CLOSED)
		log_info("deliver_breaker_closed", {"section", LOG_TEXT(name)},
		    {"consequence", LOG_TEXT("it answers, and gets messages again")});
	else
		log_warn("deliver_breaker_opened", {"section", LOG_TEXT(name)},
		    {"consequence",
			LOG_TEXT("it failed too often in a row: one request at a time finds out "
				 "when it answers again, and no other attempt is spent")});
}

/* What the mutex guards, as a turn begins. */
struct turn {
	struct arrival *arrivals;
	bool resting, ending;
	int64_t abandon_at;
};

static struct turn begin_turn(struct courier *courier, int64_t now)
{
	struct turn turn;
	eventfd_t ignored;

	(void)eventfd_read(courier->wake_fd, &ignored); /* fails when nobody called */
	pthread_mutex_lock(&courier->mutex);
	turn =
	    (struct turn){courier->first, courier->resting, courier->ending, courier->abandon_at};
	courier->first = courier->last = NULL;
	courier->status.loop_ms = now;
	pthread_mutex_unlock(&courier->mutex);
	return turn;
}

static void end_turn(struct courier *courier, const struct turn *turn, int64_t now)
{
	struct dispatch_figures figures = dispatch_figures(courier->dispatch, now);

	tell_breaker(courier, figures.breaker);
	pthread_mutex_lock(&courier->mutex);
	courier->status.figures = figures;
	if (turn->resting && courier->resting && figures.messages == 0 && !courier->first) {
		courier->idle = true;
		pthread_cond_broadcast(&courier->rested);
	}
	pthread_mutex_unlock(&courier->mutex);
}

static void wait_for_events(const struct courier *courier, const struct turn *turn)
{
	struct pollfd polled[] = {{.fd = courier->wake_fd, .events = POLLIN},
	    {.fd = http_client_fd(courier->client), .events = POLLIN}};
	int64_t now = clock_ms(), due = now + LONGEST_WAIT_MS;
	int64_t deadlines[] = {http_client_deadline(courier->client),
	    dispatch_deadline(courier->dispatch, now),
	    turn->resting && turn->abandon_at > now ? turn->abandon_at : INT64_MAX};

	for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++)
		if (deadlines[i] < due)
			due = deadlines[i];
	poll(polled, 2, due > now ? (int)(due - now) : 0);
}

static void *run(void *context)
{
	struct courier *courier = context;

	pthread_setname_np(pthread_self(), "courier");
	for (;;) {
		int64_t now = clock_ms();
		struct turn turn = begin_turn(courier, now);

		add_arrivals(courier, turn.arrivals);
		take_answers(courier, now);
		if (turn.resting)
			dispatch_drain(courier->dispatch, REST_MS);
		else
			send_all(courier, now);
		if (turn.resting && now >= turn.abandon_at &&
		    dispatch_figures(courier->dispatch, now).in_flight > 0)
			abandon(courier, now);
		end_turn(courier, &turn, now);
		if (turn.ending)
			return NULL;
		wait_for_events(courier, &turn);
	}
}

/* --- from other threads --------------------------------------------------------------------- */

static void wake(struct courier *courier)
{
	if (eventfd_write(courier->wake_fd, 1) != 0)
		log_debug("already_told", {"section", LOG_TEXT(courier->options.deliver->name)});
}

static struct arrival *new_arrival(const struct outbox_inbox_message *const *messages, size_t count)
{
	struct arrival *arrival = xmalloc(sizeof *arrival + count * sizeof *messages);

	*arrival = (struct arrival){.count = count};
	memcpy(arrival->messages, messages, count * sizeof *messages);
	return arrival;
}

static void end_at_once(
    struct courier *courier, const struct outbox_inbox_message *const *messages, size_t count)
{
	owned_text struct outbox_inbox_end *ends = xcalloc(count, sizeof *ends);

	for (size_t i = 0; i < count; i++)
		ends[i] = (struct outbox_inbox_end){
		    messages[i]->ticket, OUTBOX_INBOX_WAIT, "nothing is sent any more", REST_MS};
	courier->options.finish(courier->options.context, ends, count);
}

void courier_hand(
    struct courier *courier, const struct outbox_inbox_message *const *messages, size_t count)
{
	struct arrival *arrival = new_arrival(messages, count);
	bool resting, first;

	pthread_mutex_lock(&courier->mutex);
	resting = courier->resting;
	first = !courier->first;
	if (!resting && first)
		courier->first = arrival;
	else if (!resting)
		courier->last->next = arrival;
	if (!resting)
		courier->last = arrival;
	pthread_mutex_unlock(&courier->mutex);
	if (resting) {
		end_at_once(courier, messages, count);
		free(arrival);
	} else if (first) {
		wake(courier);
	}
}

void courier_rest(struct courier *courier, int64_t drain_ms)
{
	pthread_mutex_lock(&courier->mutex);
	courier->resting = true;
	courier->idle = false;
	courier->abandon_at = clock_ms() + drain_ms;
	wake(courier);
	while (!courier->idle)
		pthread_cond_wait(&courier->rested, &courier->mutex);
	pthread_mutex_unlock(&courier->mutex);
}

void courier_work(struct courier *courier)
{
	pthread_mutex_lock(&courier->mutex);
	courier->resting = false;
	pthread_mutex_unlock(&courier->mutex);
}

struct courier_status courier_status(struct courier *courier)
{
	struct courier_status status;

	pthread_mutex_lock(&courier->mutex);
	status = courier->status;
	pthread_mutex_unlock(&courier->mutex);
	return status;
}

/* --- life ----------------------------------------------------------------------------------- */

static void courier_free(struct courier *courier)
{
	http_client_destroy(courier->client);
	dispatch_destroy(courier->dispatch);
	http_peer_finish(&courier->peer);
	if (courier->wake_fd >= 0)
		close(courier->wake_fd);
	pthread_cond_destroy(&courier->rested);
	pthread_mutex_destroy(&courier->mutex);
	free(courier);
}

static bool start_thread(struct courier *courier, struct err *err)
{
	int error;

	courier->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (courier->wake_fd < 0)
		return err_set(err, ERR_FATAL, "no eventfd: %s", strerror(errno));
	courier->status.loop_ms = clock_ms();
	error = pthread_create(&courier->thread, NULL, run, courier);
	return error == 0 || err_set(err, ERR_RETRY, "no thread for [deliver \"%s\"]: %s",
				 courier->options.deliver->name, strerror(error));
}

struct courier *courier_start(const struct courier_options *options, struct err *err)
{
	struct courier *courier = xcalloc(1, sizeof *courier);

	courier->options = *options;
	courier->wake_fd = -1;
	pthread_mutex_init(&courier->mutex, NULL);
	pthread_cond_init(&courier->rested, NULL);
	courier->dispatch = new_dispatch(courier);
	if (set_peer(&courier->peer, options->deliver, err)) {
		courier->client = new_client(courier, err);
		if (courier->client && start_thread(courier, err))
			return courier;
	}
	courier_free(courier);
	return NULL;
}

void courier_stop(struct courier *courier)
{
	if (!courier)
		return;
	pthread_mutex_lock(&courier->mutex);
	courier->ending = true;
	pthread_mutex_unlock(&courier->mutex);
	wake(courier);
	pthread_join(courier->thread, NULL);
	courier_free(courier);
}
