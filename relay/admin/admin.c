#include "admin.h"

#include <pthread.h>
#include <string.h>
#include "cleanup.h"
#include "gate.h"
#include "metrics.h"

enum {
	SERVERS = 2, /* one serves the probes while the other writes a page of metrics */
	CONNECTIONS = 1024,
	ARRIVAL_MS = 5000,
	ANSWER_MS = 10000,
	DISCARDS = 65536,
};

struct admin {
	struct gate *gate;
	char *address;
	struct admin_callbacks callbacks;
	pthread_mutex_t mutex; /* a probe is called by one thread at a time */
};

/* Fills the body and returns the status. */
typedef unsigned route_answer(struct admin *admin, bool verbose, struct text *body);

/* A failing probe always gives the reasons; a good one reports its checks on request only. */
static unsigned answer_probe(
    struct admin *admin, admin_probe *ask, const char *good, bool verbose, struct text *body)
{
	bool well;

	pthread_mutex_lock(&admin->mutex);
	well = ask(admin->callbacks.context, body);
	pthread_mutex_unlock(&admin->mutex);
	if (well && !verbose)
		text_clear(body);
	text_addf(body, "%s%s\n", well ? "" : "not ", good);
	return well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
}

static unsigned answer_livez(struct admin *admin, bool verbose, struct text *body)
{
	return answer_probe(admin, admin->callbacks.live, "live", verbose, body);
}

static unsigned answer_readyz(struct admin *admin, bool verbose, struct text *body)
{
	return answer_probe(admin, admin->callbacks.ready, "ready", verbose, body);
}

static unsigned answer_metrics(struct admin *admin, bool verbose, struct text *body)
{
	(void)admin;
	(void)verbose;
	metrics_write(body);
	return MHD_HTTP_OK;
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

/* Requests have no body: the first call has the whole request. */
static enum MHD_Result on_admin_request(void *context, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *upload,
    size_t *upload_size, void **seen)
{
	static const struct gate_field allow[] = {{"Allow", "GET, HEAD"}, {0}};
	const struct route *route = find_route(path);
	OWNED(text_finish) struct text body = {0};
	unsigned status;
	bool verbose;

	(void)version;
	(void)upload;
	(void)upload_size;
	(void)seen;
	if (!route)
		return gate_answer(connection, MHD_HTTP_NOT_FOUND, "text/plain", &body, NULL);
	if (!text_equal(method, "GET") && !text_equal(method, "HEAD"))
		return gate_answer(
		    connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", &body, allow);
	verbose = MHD_lookup_connection_value_n(
	    connection, MHD_GET_ARGUMENT_KIND, "verbose", strlen("verbose"), NULL, NULL);
	status = route->answer(context, verbose, &body);
	return gate_answer(connection, status, route->type, &body, NULL);
}

struct admin *admin_start(struct listener *listener, const struct config *config,
    const struct admin_callbacks *callbacks, struct err *err)
{
	struct admin *admin = xcalloc(1, sizeof *admin);
	const struct gate_settings settings = {.section = "admin",
	    .listen = config->admin_listen,
	    .hosts = &config->admin_host,
	    .tls_certificate = config->admin_tls.certificate,
	    .tls_key = config->admin_tls.key,
	    .servers = SERVERS,
	    .connections = CONNECTIONS,
	    .head_ms = ARRIVAL_MS,
	    .arrival_ms = ARRIVAL_MS,
	    .answer_ms = ANSWER_MS,
	    .discards = DISCARDS,
	    .on_request = on_admin_request,
	    .context = admin};

	admin->callbacks = *callbacks;
	admin->address = xstrdup(listener->address);
	pthread_mutex_init(&admin->mutex, NULL);
	admin->gate = gate_start(listener, &settings, err);
	if (admin->gate)
		return admin;
	admin_stop(admin);
	return NULL;
}

void admin_stop(struct admin *admin)
{
	if (!admin)
		return;
	gate_stop(admin->gate);
	pthread_mutex_destroy(&admin->mutex);
	free(admin->address);
	free(admin);
}

const char *admin_address(const struct admin *admin)
{
	return admin->address;
}
