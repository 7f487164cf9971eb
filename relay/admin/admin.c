#include "admin.h"

#include <pthread.h>
#include <string.h>
#include "cleanup.h"
#include "metrics.h"
#include "server.h"

enum {
	WORKERS = 2, /* one is free for the probes while the other writes pages of metrics */
	CONNECTIONS = 1024,
	ARRIVAL_MS = 5000,
	IDLE_MS = 10000,
	ANSWER_MS = 10000,
	DISCARDS = 65536,
};

struct admin {
	struct server *server;
	char *address;
	struct admin_callbacks callbacks;
	pthread_mutex_t mutex; /* a probe is asked by one thread at a time */
};

/* Fills the body and returns the status. */
typedef unsigned route_answer(struct admin *admin, bool verbose, struct text *body);

/* A failing probe always says why; a good one does when asked. */
static unsigned probe(
    struct admin *admin, admin_probe *ask, const char *good, bool verbose, struct text *body)
{
	bool well;

	pthread_mutex_lock(&admin->mutex);
	well = ask(admin->callbacks.context, body);
	pthread_mutex_unlock(&admin->mutex);

	if (well && !verbose)
		text_clear(body);
	text_addf(body, "%s%s\n", well ? "" : "not ", good);
	return well ? 200 : 503;
}

static unsigned answer_livez(struct admin *admin, bool verbose, struct text *body)
{
	return probe(admin, admin->callbacks.live, "live", verbose, body);
}

static unsigned answer_readyz(struct admin *admin, bool verbose, struct text *body)
{
	return probe(admin, admin->callbacks.ready, "ready", verbose, body);
}

static unsigned answer_metrics(struct admin *admin, bool verbose, struct text *body)
{
	(void)admin;
	(void)verbose;
	metrics_write(body);
	return 200;
}

static const struct route {
	const char *path;
	const char *type;
	route_answer *answer;
} routes[] = {
    {"/livez", "text/plain; charset=utf-8", answer_livez},
    {"/readyz", "text/plain; charset=utf-8", answer_readyz},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", answer_metrics},
};

static const struct route *find_route(const char *path)
{
	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
		if (text_equal(routes[i].path, path))
			return &routes[i];
	return NULL;
}

/* --- the server's callbacks ------------------------------------------------------------------- */

struct admin_call {
	struct admin *admin;
	struct server_request *request;
	const struct route *route;
	bool verbose;
};

static void respond(const struct admin_call *call, unsigned status, const struct text *body)
{
	const struct server_answer answer = {.status = status,
	    .type = call->route ? call->route->type : "text/plain",
	    .fields = status == 405 ? "Allow: GET, HEAD\r\n" : NULL,
	    .body = body};

	server_answer(call->request, &answer);
}

static void *on_head(void *context, struct server_request *request, const struct request_head *head)
{
	struct admin_call *call = xcalloc(1, sizeof *call);
	bool reads = text_equal(head->method, "GET") || text_equal(head->method, "HEAD");
	const struct text nothing = {0};

	*call = (struct admin_call){context, request, find_route(head->path),
	    request_head_argument(head, "verbose") != NULL};
	if (!call->route)
		respond(call, 404, &nothing);
	else if (!reads)
		respond(call, 405, &nothing);
	else if (call->route->answer == answer_metrics)
		server_set_heavy(request);
	return call;
}

static void on_body(void *context, const char *bytes, size_t length)
{
	(void)context;
	(void)bytes;
	(void)length;
}

static void on_work(void *context)
{
	const struct admin_call *call = context;
	OWNED(text_finish) struct text body = {0};
	unsigned status = call->route->answer(call->admin, call->verbose, &body);

	respond(call, status, &body);
}

static void on_end(void *context, bool was_sent)
{
	(void)was_sent;
	free(context);
}

/* --- start and stop --------------------------------------------------------------------------- */

struct admin *admin_start(struct listener *listener, const char *listen,
    const struct config_list *hosts, const struct admin_callbacks *callbacks, struct err *err)
{
	struct admin *admin = xcalloc(1, sizeof *admin);
	const struct server_settings settings = {.section = "admin",
	    .listen = listen,
	    .hosts = hosts,
	    .workers = WORKERS,
	    .connections = CONNECTIONS,
	    .head_ms = ARRIVAL_MS,
	    .request_ms = ARRIVAL_MS,
	    .idle_ms = IDLE_MS,
	    .answer_ms = ANSWER_MS,
	    .discards = DISCARDS,
	    .callbacks = {on_head, on_body, on_work, on_end},
	    .context = admin};

	admin->callbacks = *callbacks;
	pthread_mutex_init(&admin->mutex, NULL);
	admin->address = listener->address;
	admin->server = server_start(listener->fd, &settings, err);
	*listener = (struct listener){.fd = -1};
	if (admin->server)
		return admin;
	admin_stop(admin);
	return NULL;
}

void admin_stop(struct admin *admin)
{
	if (!admin)
		return;
	server_stop(admin->server);
	pthread_mutex_destroy(&admin->mutex);
	free(admin->address);
	free(admin);
}

const char *admin_address(const struct admin *admin)
{
	return admin->address;
}
