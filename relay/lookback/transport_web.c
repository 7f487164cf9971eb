/*
 * The part that HTTP and gRPC have in common: settings, signature, sending, and collecting answers
 * by libcurl. Begin at web_ask and web_take.
 */
#include "transport_web.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "config_credentials.h"
#include "hex.h"
#include "http_peer.h"
#include "http_service.h"
#include "wire.h"

enum {
	MOST_REQUESTS = 1000, /* to all hosts, where messages bring URLs: the most of one host */
	MOST_HEADER_BYTES = 32 << 10,
	HEADERS = 8 + HTTP_CREDENTIALS_HEADERS,
};

/*
 * A call may wait for a token. One to a service with several addresses may wait for an address, and
 * may try several.
 */
enum call_state { CALL_SENT, CALL_WAITS, CALL_ENDED };

struct call {
	struct reply reply; /* first */
	struct call *next, *before;
	struct text url, body;
	enum call_state state;
	int64_t asked_at;
	/* with a service only */
	bool is_balanced;
	struct http_service_call tries;
	bool was_sent; /* to an address that failed */
};

struct transport {
	const struct web_dialect *dialect;
	const struct config_check *check;
	struct http_client *client;
	struct http_peer peer;
	struct http_credentials *credentials;
	bool waits_for_token;
	struct http_limits limits;
	struct call *calls; /* all that were not released */
	int call_count;
	/* The addresses of the section's own url; NULL: that is a plain URL. */
	struct http_service *service;
	int epoll_fd;       /* with a service: its descriptor and the client's */
	int waiting, ended; /* calls in these states; ended: without a response */
};

/* --- settings ------------------------------------------------------------------------------- */

/* The caller has checked the URLs of messages; this one is the operator's. */
static bool check_configured_url(const struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	struct text url = {0};
	struct err why = {0};
	bool located;

	if (transport->service)
		return true;
	if (!check->url[0]) {
		if (check->allow[0])
			return true;
		return check_refuse(check, err, "url",
		    "it is empty, and so is allow: there is nobody to ask; set one of them");
	}
	located = transport->dialect->locate(check->url, &url, &why);
	text_finish(&url);
	return located || check_refuse(check, err, "url", "%s", why.message);
}

static bool check_allow(const struct config_check *check, struct err *err)
{
	struct http_destinations list;
	struct err why;

	if (!http_destinations_parse(check->allow, &list, &why))
		return check_refuse(check, err, "allow", "%s", why.message);
	http_destinations_finish(&list);
	return true;
}

static int most_calls(const struct transport *transport)
{
	return transport->check->allow[0] ? MOST_REQUESTS : (int)transport->check->host_in_flight;
}

/* Calls take up no place of a request for a token: web_ask counts them. */
static bool set_client(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	int host = (int)check->host_in_flight;
	int all = most_calls(transport);
	int tokens = http_credentials_in_flight(transport->credentials);
	const struct http_client_settings settings = {
	    .max_in_flight = all + (transport->service ? 1 : 0) + tokens, /* see try_elsewhere */
	    .max_connections = all + tokens,
	    .max_host_connections = host + tokens,
	    .user_agent = "outbox-relay/" RELAY_VERSION,
	    .networks = &transport->peer.networks};

	transport->limits = (struct http_limits){.timeout_ms = (int)check->timeout_ms,
	    .connect_timeout_ms = (int)check->connect_timeout_ms,
	    .max_body = (size_t)check->max_answer,
	    .max_headers = MOST_HEADER_BYTES};
	transport->client = http_client_create(&settings, err);
	return transport->client;
}

static bool set_service_peer(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	const struct http_peer_texts texts = {.url = service_url_is(check->url) ? "" : check->url,
	    .networks = check->networks,
	    .secret = check->secret,
	    .old_secret = check->old_secret,
	    .tls_ca = check->tls_ca,
	    .tls_certificate = check->tls_certificate,
	    .tls_key = check->tls_key};
	const char *key;
	struct err why;

	return http_peer_init(&transport->peer, &texts, &key, &why) ||
	       check_refuse(check, err, key, "%s", why.message);
}

static bool set_credentials(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	const char *key;
	struct err why;

	transport->credentials =
	    config_credentials_open(&check->credentials, "check", check->name, &key, &why);
	return transport->credentials || check_refuse(check, err, key, "%s", why.message);
}

static bool add_to_epoll(const struct transport *transport, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return fd < 0 || epoll_ctl(transport->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* The loop waits for one descriptor of a transport, so that of the client is put into an epoll. */
static bool join_descriptors(struct transport *transport, struct err *err)
{
	if (!transport->service)
		return true;
	transport->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (transport->epoll_fd >= 0 &&
	    add_to_epoll(transport, http_client_fd(transport->client)) &&
	    add_to_epoll(transport, http_service_fd(transport->service)))
		return true;
	return err_set(err, ERR_FATAL, "no descriptor for a service: %s", strerror(errno));
}

static bool set_service(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	const struct check_unfit unfit[] = {{"name_servers", check->name_servers,
	    "only url = grpc://NAME asks name servers; remove it, or set that"}};
	owned_text char *section = xformat("check %s", check->name);
	const struct http_service_settings settings = {.section = section,
	    .url = check->url,
	    .name_servers = check->name_servers,
	    .networks = &transport->peer.networks,
	    .breaker_failures = check->breaker_failures,
	    .breaker_pause_ms = check->breaker_pause_ms};
	const char *key;
	struct err why;

	if (!service_url_is(check->url))
		return check_has_none(check, unfit, 1, err);
	if (!transport->dialect->takes_services)
		return check_refuse(
		    check, err, "url", "grpc:// is called by gRPC; set transport = grpc");
	transport->service = http_service_open(&settings, &key, &why);
	return transport->service || check_refuse(check, err, key, "%s", why.message);
}

static bool set_up_web(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	const struct check_unfit unfit[] = {
	    {"dsn", check->dsn, "only transport = sql asks a database; remove it, or set that"}};

	return check_has_none(check, unfit, 1, err) && set_service_peer(transport, err) &&
	       set_service(transport, err) && check_configured_url(transport, err) &&
	       check_allow(check, err) && set_credentials(transport, err) &&
	       set_client(transport, err) && join_descriptors(transport, err);
}

struct transport *web_open(
    const struct web_dialect *dialect, const struct config_check *check, struct err *err)
{
	struct transport *transport = xcalloc(1, sizeof *transport);

	transport->dialect = dialect;
	transport->check = check;
	transport->epoll_fd = -1;
	if (set_up_web(transport, err))
		return transport;
	web_close(transport);
	return NULL;
}

bool web_check(const struct web_dialect *dialect, const struct config_check *check, struct err *err)
{
	struct transport *transport = web_open(dialect, check, err);

	if (!transport)
		return false;
	web_close(transport);
	return true;
}

/* --- asking --------------------------------------------------------------------------------- */

static void set_call_state(struct transport *transport, struct call *call, enum call_state state)
{
	transport->waiting += (state == CALL_WAITS) - (call->state == CALL_WAITS);
	transport->ended += (state == CALL_ENDED) - (call->state == CALL_ENDED);
	call->state = state;
}

static void forget_call(struct transport *transport, struct call *call)
{
	set_call_state(transport, call, CALL_SENT);
	transport->call_count--;
	if (call->before)
		call->before->next = call->next;
	else
		transport->calls = call->next;
	if (call->next)
		call->next->before = call->before;

	reply_finish(&call->reply);
	text_finish(&call->url);
	text_finish(&call->body);
	free(call);
}

static struct call *remember_call(
    struct transport *transport, const struct check_question *question)
{
	struct call *call = xcalloc(1, sizeof *call);

	reply_begin(&call->reply, question);
	call->next = transport->calls;
	if (call->next)
		call->next->before = call;
	transport->calls = call;
	transport->call_count++;
	return call;
}

/*
 * The name is the same whenever the same request is made. For one id it is made from the event id
 * that its message would have, for several from all the ids in their order.
 */
static void add_question_name(struct text *name, const struct check_question *question)
{
	unsigned char uuid[UUID_BYTES];
	char digits[2 * UUID_BYTES];
	struct text ids = {0};

	for (int i = 0; i < question->id_count; i++)
		text_addf(&ids, "%s%s", i ? "\n" : "", question->ids[i].biz_id);
	lookback_event_id(question->biz_type, text_string(&ids), uuid);
	text_finish(&ids);
	text_add(name, "check_");
	hex_write(digits, uuid, UUID_BYTES);
	text_append(name, digits, sizeof digits);
}

static bool sign_call(const struct transport *transport, const struct call *call, const char *name,
    struct http_signature *signature, struct http_header *headers, size_t *count, struct err *err)
{
	const size_t skipped = transport->dialect->unsigned_bytes;

	return http_peer_sign(&transport->peer, name, clock_wall_us() / 1000000,
	    text_string(&call->body) + skipped, call->body.length - skipped, signature, headers,
	    count, err);
}

static bool send_call(struct transport *transport, struct call *call, const char *connect_to,
    int64_t timeout_ms, struct err *err)
{
	const struct web_dialect *dialect = transport->dialect;
	struct http_limits limits = transport->limits;
	char timeout[24];
	struct http_header headers[HEADERS];
	struct http_signature signature = {0};
	struct text name = {0};
	size_t count = 0;
	bool sent;

	for (int i = 0; i < dialect->header_count; i++)
		headers[count++] = dialect->headers[i];
	limits.timeout_ms = (int)timeout_ms;
	snprintf(timeout, sizeof timeout, "%" PRId64 "m", timeout_ms);
	if (dialect->timeout_header)
		headers[count++] = (struct http_header){dialect->timeout_header, timeout};

	http_credentials_add(transport->credentials, headers, &count);
	add_question_name(&name, call->reply.question);
	sent = sign_call(transport, call, text_string(&name), &signature, headers, &count, err);
	sent = sent && http_client_send(transport->client,
			   &(struct http_request){.method = HTTP_POST,
			       .protocol = dialect->protocol,
			       .url = text_string(&call->url),
			       .connect_to = connect_to,
			       .headers = headers,
			       .header_count = count,
			       .body = text_string(&call->body),
			       .body_length = call->body.length,
			       .tls = &transport->peer.tls,
			       .limits = limits,
			       .opaque = call},
			   err);

	http_signature_finish(&signature);
	text_finish(&name);
	return sent;
}

/* --- services ------------------------------------------------------------------------------ */

static void end_without_response(
    struct transport *transport, struct call *call, const char *failure, const char *error)
{
	reply_fail(&call->reply, failure, "%s", error);
	call->reply.answer.sent = call->was_sent;
	call->reply.answer.total_us = (clock_ms() - call->asked_at) * 1000;
	set_call_state(transport, call, CALL_ENDED);
}

static int64_t time_left(const struct transport *transport, const struct call *call, int64_t now)
{
	return call->asked_at + transport->check->timeout_ms - now;
}

/* Sends the call to an address that it has not tried. */
static bool try_address(
    struct transport *transport, struct call *call, int64_t now, struct err *err)
{
	OWNED(text_finish) struct text url = {0}, connect_to = {0};

	if (time_left(transport, call, now) < 1)
		return err_set(err, ERR_RETRY, "no time is left");
	if (!http_service_begin(transport->service, now, &call->tries, &url, &connect_to))
		return err_set(err, ERR_RETRY, "there is no other address");

	text_clear(&call->url);
	if (transport->dialect->locate(text_string(&url), &call->url, err) &&
	    send_call(transport, call, connect_to.length ? text_string(&connect_to) : NULL,
		time_left(transport, call, now), err)) {
		set_call_state(transport, call, CALL_SENT);
		return true;
	}
	http_service_end(transport->service, now, &call->tries, BREAKER_NEITHER, NULL);
	return false;
}

/* The call has its token, and goes to an address of the service once there is a list of them. */
static void serve_balanced(struct transport *transport, struct call *call, int64_t now)
{
	const char *error, *failure = http_service_failure(transport->service, &error);
	struct err err;

	if (text_equal(failure, "resolve_timeout") &&
	    now < call->asked_at + transport->check->connect_timeout_ms)
		return;
	if (failure)
		end_without_response(transport, call, failure, error);
	else if (!try_address(transport, call, now, &err))
		end_without_response(transport, call, "not_sent", err.message);
}

/* The call has its token now. */
static void serve_plain(struct transport *transport, struct call *call, int64_t now)
{
	struct err err;

	if (send_call(transport, call, NULL, time_left(transport, call, now), &err))
		set_call_state(transport, call, CALL_SENT);
	else
		end_without_response(transport, call, "not_sent", err.message);
}

/*
 * A call that waited for its token until its time was over is not sent: it would spend an attempt,
 * and the service could not answer in time.
 */
static void serve_call(struct transport *transport, struct call *call, int64_t now,
    enum http_access access, const char *error)
{
	if (access == HTTP_ACCESS_FAILED)
		end_without_response(transport, call, "token", error);
	else if (access == HTTP_ACCESS_READY && call->is_balanced)
		serve_balanced(transport, call, now);
	else if (time_left(transport, call, now) < 1)
		end_without_response(
		    transport, call, "token", "token_url gave no token within timeout");
	else if (access == HTTP_ACCESS_READY)
		serve_plain(transport, call, now);
}

/* Sends the calls that wait for a token or for the first list of addresses, or ends them. */
static void serve_waiting(struct transport *transport, int64_t now)
{
	const char *error;
	enum http_access access =
	    http_credentials_access(transport->credentials, transport->client, now, &error);

	transport->waits_for_token = access == HTTP_ACCESS_WAITS;
	for (struct call *call = transport->calls; call; call = call->next)
		if (call->state == CALL_WAITS)
			serve_call(transport, call, now, access, error);
}

/* The service said nothing: another address gets the request at once. */
static bool is_connection_lost(const struct http_response *response)
{
	static const char *const lost[] = {
	    "connect", "connect_timeout", "tls", "closed", "address_refused"};

	for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
		if (text_equal(response->failure, lost[i]))
			return true;
	return false;
}

/* The response as evidence about the address. */
static enum breaker_outcome outcome_of(
    const struct http_response *response, const struct check_answer *answer)
{
	static const char *const ours[] = {"url", "queue_timeout", "internal", "address_refused"};

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		if (text_equal(response->failure, ours[i]))
			return BREAKER_NEITHER;
	return answer->reached ? BREAKER_SUCCESS : BREAKER_FAILURE;
}

/*
 * The service as a whole works if another address answered meanwhile: then this failure must not
 * open its breaker.
 */
static void judge_address(
    struct transport *transport, struct call *call, const struct http_response *response)
{
	struct check_answer *answer = &call->reply.answer;
	owned_text char *error = xstrdup(answer->error);

	http_service_end(
	    transport->service, clock_ms(), &call->tries, outcome_of(response, answer), error);
	answer->sent |= call->was_sent;
	answer->total_us = (clock_ms() - call->asked_at) * 1000;
	if (response->failure)
		reply_fail(&call->reply, response->failure, "%s (%s)", error, call->tries.address);
	if (!answer->reached)
		answer->reached = http_service_answered_since(transport->service, call->asked_at);
}

/* True: the call goes on at another address; the response was released. */
static bool try_elsewhere(
    struct transport *transport, struct call *call, struct http_response *response)
{
	int64_t now = clock_ms();
	const char *error;
	struct err err;

	if (!call->is_balanced || !is_connection_lost(response))
		return false;
	http_service_end(transport->service, now, &call->tries,
	    text_equal(response->failure, "address_refused") ? BREAKER_NEITHER : BREAKER_FAILURE,
	    response->error);
	call->was_sent |= response->sent;
	/* The token may have ended meanwhile. The client has room beside this response
	 * (set_client). */
	if (http_credentials_access(transport->credentials, transport->client, now, &error) !=
		HTTP_ACCESS_READY ||
	    !try_address(transport, call, now, &err))
		return false;
	http_client_release(transport->client, response);
	return true;
}

/* --- questions ------------------------------------------------------------------------------ */

bool web_ask(struct transport *transport, const struct check_question *question, struct err *err)
{
	const char *url = question->url ? question->url : transport->check->url, *error;
	int64_t now = clock_ms();
	struct call *call;
	bool asked;

	if (!url[0])
		return err_set(err, ERR_REJECT,
		    "[check \"%s\"] has no url, and the message brings none",
		    transport->check->name);
	if (transport->call_count >= most_calls(transport))
		return err_set(err, ERR_RETRY, "%d requests are under way, as many as may be",
		    transport->call_count);
	call = remember_call(transport, question);

	call->asked_at = now;
	call->is_balanced = transport->service && !question->url;
	transport->dialect->write(question, &call->body);
	asked = call->is_balanced || transport->dialect->locate(url, &call->url, err);
	if (asked &&
	    (call->is_balanced || http_credentials_access(transport->credentials, transport->client,
				      now, &error) != HTTP_ACCESS_READY)) {
		set_call_state(transport, call, CALL_WAITS);
		serve_waiting(transport, now);
	} else if (asked) {
		asked = send_call(transport, call, NULL, transport->check->timeout_ms, err);
	}
	if (!asked)
		forget_call(transport, call);
	return asked;
}

/* --- answers -------------------------------------------------------------------------------- */

/* The credentials are wrong, or were changed just now. */
static bool refuses_credentials(const struct http_response *response)
{
	static const char grpc_unauthenticated[] = "16";

	return response->status == 401 ||
	       text_equal(http_response_header(response, "grpc-status"), grpc_unauthenticated);
}

static void fill_answer(
    struct transport *transport, struct call *call, const struct http_response *response)
{
	struct check_answer *answer = &call->reply.answer;

	answer->sent = response->sent;
	answer->total_us = response->total_us;
	answer->status = response->status ? response->status : -1;
	answer->retry_after_ms = http_response_retry_after_ms(response, clock_wall_us());
	if (response->failure)
		reply_fail(&call->reply, response->failure, "%s", response->error);
	else
		transport->dialect->read(&call->reply, response);
	/* A peer that answers too much works; is_well knows the status only after `read`. */
	answer->reached = (!response->failure || text_equal(response->failure, "too_large")) &&
			  transport->dialect->is_well(&call->reply, response);
	if (refuses_credentials(response))
		http_credentials_refused(transport->credentials, clock_ms());
	if (call->is_balanced)
		judge_address(transport, call, response);
}

/* A call that ended without a response; NULL: none. */
static struct check_answer *take_ended(struct transport *transport)
{
	struct call *call = transport->ended ? transport->calls : NULL;

	while (call && call->state != CALL_ENDED)
		call = call->next;
	if (!call)
		return NULL;
	set_call_state(transport, call, CALL_SENT);
	return &call->reply.answer;
}

struct check_answer *web_take(struct transport *transport)
{
	struct check_answer *ended = take_ended(transport);
	struct http_response *response;

	if (ended)
		return ended;
	while ((response = http_client_take(transport->client))) {
		struct call *call = response->opaque;

		if (http_credentials_take(transport->credentials, response, clock_ms())) {
			http_client_release(transport->client, response);
			serve_waiting(transport, clock_ms());
			continue;
		}
		if (try_elsewhere(transport, call, response))
			continue;
		fill_answer(transport, call, response);
		http_client_release(transport->client, response);
		return &call->reply.answer;
	}
	return take_ended(transport);
}

void web_release(struct transport *transport, struct check_answer *answer)
{
	forget_call(transport, (struct call *)(void *)answer);
}

int web_fd(const struct transport *transport)
{
	return transport->service ? transport->epoll_fd : http_client_fd(transport->client);
}

static int64_t waiting_deadline(const struct transport *transport)
{
	const struct config_check *check = transport->check;
	int64_t patience_ms =
	    transport->waits_for_token ? check->timeout_ms : check->connect_timeout_ms;
	int64_t due = INT64_MAX;

	if (transport->ended)
		return 0;
	for (const struct call *call = transport->waiting ? transport->calls : NULL; call;
	     call = call->next) {
		int64_t at = call->asked_at + patience_ms;

		if (call->state == CALL_WAITS && at < due)
			due = at;
	}
	return due;
}

int64_t web_deadline(const struct transport *transport)
{
	int64_t due = http_client_deadline(transport->client), at;

	at = transport->service ? http_service_deadline(transport->service) : INT64_MAX;
	if (at < due)
		due = at;
	at = waiting_deadline(transport);
	return at < due ? at : due;
}

void web_step(struct transport *transport, int64_t now_ms)
{
	http_client_step(transport->client, now_ms);
	if (transport->service)
		http_service_step(transport->service, now_ms);
	if (transport->waiting)
		serve_waiting(transport, now_ms);
}

bool web_addresses(const struct transport *transport, struct transport_addresses *ret_addresses)
{
	const struct balancer_address *address;

	*ret_addresses = (struct transport_addresses){0};
	if (!transport->service)
		return false;
	for (int i = 0; (address = http_service_address(transport->service, i)); i++) {
		ret_addresses->working += !address->breaker.tripped;
		ret_addresses->failing += address->breaker.tripped;
	}
	ret_addresses->refused = http_service_refused(transport->service);
	return true;
}

void web_close(struct transport *transport)
{
	if (!transport)
		return;

	/* The client goes first: its requests point to the calls. */
	http_client_destroy(transport->client);
	http_credentials_close(transport->credentials);
	while (transport->calls)
		forget_call(transport, transport->calls);
	http_service_close(transport->service);
	if (transport->epoll_fd >= 0)
		close(transport->epoll_fd);
	http_peer_finish(&transport->peer);
	free(transport);
}
