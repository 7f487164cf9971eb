#include "admin_client.h"

#include <string.h>
#include "cleanup.h"
#include "http_client.h"
#include "listen_address.h"

enum { MOST_BYTES = 1 << 20 };

struct admin_place admin_place_of_admin(const struct config *config)
{
	return (struct admin_place){config->admin_listen, config->admin_tls.certificate};
}

struct admin_place admin_place_of_api(const struct config_api *api)
{
	return (struct admin_place){api->listen, api->tls.certificate};
}

static bool write_admin_url(
    const struct admin_place *place, const char *path, struct text *url, struct err *err)
{
	owned_text char *host = NULL, *port = NULL;
	const char *here;
	bool is_v6;

	if (!listen_address_parse(place->listen, &host, &port, err))
		return false;
	here = text_equal(host, "0.0.0.0") ? "127.0.0.1" : text_equal(host, "::") ? "::1" : host;
	is_v6 = strchr(here, ':');
	text_addf(url, "%s://%s%s%s:%s%s", place->tls_certificate[0] ? "https" : "http",
	    is_v6 ? "[" : "", here, is_v6 ? "]" : "", port, path);
	return true;
}

static bool send_admin_request(struct http_client *client, const struct admin_place *place,
    const struct admin_order *order, const char *url, struct err *err)
{
	owned_text char *bearer = order->token ? xformat("Bearer %s", order->token) : NULL;
	const struct http_tls tls = {.pinned_file = place->tls_certificate};
	struct http_header headers[2];
	size_t count = 0;

	if (bearer)
		headers[count++] = (struct http_header){"Authorization", bearer};
	if (order->body)
		headers[count++] = (struct http_header){"Content-Type", "application/json"};
	return http_client_send(client,
	    &(struct http_request){.method = order->body ? HTTP_POST : HTTP_GET,
		.protocol = HTTP_1_1,
		.url = url,
		.headers = headers,
		.header_count = count,
		.body = order->body,
		.body_length = order->body ? strlen(order->body) : 0,
		.tls = &tls,
		.limits = {.timeout_ms = order->timeout_ms,
		    .connect_timeout_ms = order->timeout_ms,
		    .max_body = MOST_BYTES,
		    .max_headers = MOST_BYTES}},
	    err);
}

/* Another program may listen at this address. */
static bool judge_admin_response(
    const char *listen, const struct http_response *response, struct err *err)
{
	static const char *const nobody[] = {"connect", "connect_timeout", "resolve"};

	if (!response->failure)
		return true;
	for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++)
		if (text_equal(response->failure, nobody[i]))
			return err_set(
			    err, ERR_RETRY, "no relay answers at %s: %s", listen, response->error);
	if (text_equal(response->failure, "garbled"))
		return err_set(err, ERR_RETRY, "what answers at %s speaks no HTTP", listen);
	return err_set(err, ERR_RETRY, "no answer from %s: %s%s", listen, response->error,
	    text_equal(response->failure, "tls")
		? ", so it is another program, or a relay that has not taken the changed files "
		  "(certificate_refused in its log)"
		: "");
}

static bool exchange_admin(struct http_client *client, const struct admin_place *place,
    const struct admin_order *order, const char *url, int *ret_status, struct text *body,
    struct err *err)
{
	struct http_response *response;
	bool good;

	if (!send_admin_request(client, place, order, url, err))
		return false;
	response = http_client_wait(client);
	good = judge_admin_response(place->listen, response, err);
	*ret_status = response->status;
	if (good)
		text_append(body, response->body, response->body_length);
	http_client_release(client, response);
	return good;
}

bool admin_ask(const struct admin_place *place, const struct admin_order *order, int *ret_status,
    struct text *body, struct err *err)
{
	struct http_networks anywhere = {0};
	OWNED(text_finish) struct text url = {0};
	struct http_client *client;
	bool done = false;

	if (!write_admin_url(place, order->path, &url, err) ||
	    !http_networks_parse("0.0.0.0/0, ::/0", &anywhere, err))
		return false;
	client = http_client_create_single(&anywhere, err);
	if (client)
		done =
		    exchange_admin(client, place, order, text_string(&url), ret_status, body, err);
	http_client_destroy(client);
	http_networks_finish(&anywhere);
	return done;
}

bool admin_get(const struct admin_place *place, const char *path, int timeout_ms, int *ret_status,
    struct text *body, struct err *err)
{
	const struct admin_order order = {.path = path, .timeout_ms = timeout_ms};

	return admin_ask(place, &order, ret_status, body, err);
}
