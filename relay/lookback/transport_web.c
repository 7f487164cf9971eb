/*
 * The part that HTTP and gRPC have in common: settings, signature, sending, and collecting answers
 * by libcurl. Begin at web_ask and web_take.
 */
#include "transport_web.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "clock.h"
#include "hex.h"
#include "http_peer.h"
#include "wire.h"

enum {
	MOST_REQUESTS = 1000, /* to all hosts, where messages bring URLs: the most of one host */
	MOST_HEADER_BYTES = 32 << 10,
	HEADERS = 8,
};

struct call {
	struct reply reply; /* first */
	struct call *next, *before;
	struct text url, body;
};

struct transport {
	const struct web_dialect *dialect;
	const struct config_check *check;
	struct http_client *client;
	struct http_peer peer;
	struct http_limits limits;
	char timeout[24];
	struct call *calls; /* all that were not released */
};

/* --- settings ------------------------------------------------------------------------------- */

/* The caller has checked the URLs of messages; this one is the operator's. */
static bool check_configured_url(const struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	struct text url = {0};
	struct err why = {0};
	bool located;

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

static bool set_client(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	int host = (int)check->host_in_flight;
	int all = check->allow[0] ? MOST_REQUESTS : host;
	const struct http_client_settings settings = {.max_in_flight = all,
	    .max_connections = all,
	    .max_host_connections = host,
	    .user_agent = "outbox-relay/" RELAY_VERSION,
	    .networks = &transport->peer.networks};

	transport->limits = (struct http_limits){.timeout_ms = (int)check->timeout_ms,
	    .connect_timeout_ms = (int)check->connect_timeout_ms,
	    .max_body = (size_t)check->max_answer,
	    .max_headers = MOST_HEADER_BYTES};
	snprintf(transport->timeout, sizeof transport->timeout, "%" PRId64 "m", check->timeout_ms);
	transport->client = http_client_create(&settings, err);
	return transport->client;
}

static bool set_service_peer(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	const struct http_peer_texts texts = {.url = check->url,
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

static bool set_up_web(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	const struct check_unfit unfit[] = {
	    {"dsn", check->dsn, "only transport = sql asks a database; remove it, or set that"}};

	return check_has_none(check, unfit, 1, err) && set_service_peer(transport, err) &&
	       check_configured_url(transport, err) && check_allow(check, err) &&
	       set_client(transport, err);
}

struct transport *web_open(
    const struct web_dialect *dialect, const struct config_check *check, struct err *err)
{
	struct transport *transport = xcalloc(1, sizeof *transport);

	transport->dialect = dialect;
	transport->check = check;
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

static void forget_call(struct transport *transport, struct call *call)
{
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

static bool send_call(struct transport *transport, struct call *call, struct err *err)
{
	const struct web_dialect *dialect = transport->dialect;
	struct http_header headers[HEADERS];
	struct http_signature signature = {0};
	struct text name = {0};
	size_t count = 0;
	bool sent;

	for (int i = 0; i < dialect->header_count; i++)
		headers[count++] = dialect->headers[i];
	if (dialect->timeout_header)
		headers[count++] =
		    (struct http_header){dialect->timeout_header, transport->timeout};

	add_question_name(&name, call->reply.question);
	sent = sign_call(transport, call, text_string(&name), &signature, headers, &count, err);
	sent = sent && http_client_send(transport->client,
			   &(struct http_request){.method = HTTP_POST,
			       .protocol = dialect->protocol,
			       .url = text_string(&call->url),
			       .headers = headers,
			       .header_count = count,
			       .body = text_string(&call->body),
			       .body_length = call->body.length,
			       .tls = &transport->peer.tls,
			       .limits = transport->limits,
			       .opaque = call},
			   err);

	http_signature_finish(&signature);
	text_finish(&name);
	return sent;
}

bool web_ask(struct transport *transport, const struct check_question *question, struct err *err)
{
	const char *url = question->url ? question->url : transport->check->url;
	struct call *call;

	if (!url[0])
		return err_set(err, ERR_REJECT,
		    "[check \"%s\"] has no url, and the message brings none",
		    transport->check->name);
	call = remember_call(transport, question);
	if (transport->dialect->locate(url, &call->url, err)) {
		transport->dialect->write(question, &call->body);
		if (send_call(transport, call, err))
			return true;
	}
	forget_call(transport, call);
	return false;
}

/* --- answers -------------------------------------------------------------------------------- */

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
}

struct check_answer *web_take(struct transport *transport)
{
	struct http_response *response = http_client_take(transport->client);
	struct call *call;

	if (!response)
		return NULL;
	call = response->opaque;
	fill_answer(transport, call, response);
	http_client_release(transport->client, response);
	return &call->reply.answer;
}

void web_release(struct transport *transport, struct check_answer *answer)
{
	forget_call(transport, (struct call *)(void *)answer);
}

int web_fd(const struct transport *transport)
{
	return http_client_fd(transport->client);
}

int64_t web_deadline(const struct transport *transport)
{
	return http_client_deadline(transport->client);
}

void web_step(struct transport *transport, int64_t now_ms)
{
	http_client_step(transport->client, now_ms);
}

void web_close(struct transport *transport)
{
	if (!transport)
		return;
	/* The client goes first: its requests point to the calls. */
	http_client_destroy(transport->client);
	while (transport->calls)
		forget_call(transport, transport->calls);
	http_peer_finish(&transport->peer);
	free(transport);
}
