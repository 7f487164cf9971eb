#include "admin.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include "cleanup.h"
#include "listener.h"
#include "logging.h"
#include "metrics.h"

enum { CONNECTIONS = 32, CONNECTION_SECONDS = 10, HEAD_BYTES = 16384 };

struct admin {
	struct MHD_Daemon *server;
	char *address;
	struct admin_callbacks callbacks;
};

/* Fills the body and returns the status. */
typedef unsigned route_answer(struct admin *admin, bool verbose, struct text *body);

/* A failing probe always says why; a good one does when asked. */
static unsigned probe(
    struct admin *admin, admin_probe *ask, const char *good, bool verbose, struct text *body)
{
	bool well = ask(admin->callbacks.context, body);

	if (well && !verbose)
		text_clear(body);
	text_addf(body, "%s%s\n", well ? "" : "not ", good);
	return well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
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

static enum MHD_Result respond(
    struct MHD_Connection *connection, unsigned status, const char *type, const struct text *body)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
	    body->length, (void *)text_string(body), MHD_RESPMEM_MUST_COPY);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", type);
	MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *upload,
    size_t *upload_size, void **seen)
{
	const struct route *route = find_route(path);
	OWNED(text_finish) struct text body = {0};
	unsigned status;
	bool verbose;

	(void)version;
	(void)upload;
	if (!text_equal(method, "GET") && !text_equal(method, "HEAD"))
		return respond(connection, route ? MHD_HTTP_METHOD_NOT_ALLOWED : MHD_HTTP_NOT_FOUND,
		    "text/plain", &body);
	/* The first call has only the head: answered in the last, the connection stays open. */
	if (!*seen || *upload_size > 0) {
		*seen = context;
		*upload_size = 0;
		return MHD_YES;
	}
	if (!route)
		return respond(connection, MHD_HTTP_NOT_FOUND, "text/plain", &body);
	verbose = MHD_lookup_connection_value_n(
	    connection, MHD_GET_ARGUMENT_KIND, "verbose", strlen("verbose"), NULL, NULL);
	status = route->answer(context, verbose, &body);
	return respond(connection, status, route->type, &body);
}

/* What a client did wrong is its own business. */
static void on_log(void *context, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));
static void on_log(void *context, const char *format, va_list arguments)
{
	char line[256];

	(void)context;
	vsnprintf(line, sizeof line, format, arguments);
	log_debug("admin_log", {"text", LOG_TEXT(line)});
}

struct admin *admin_start(
    const char *listen, const struct admin_callbacks *callbacks, struct err *err)
{
	struct admin *admin = xcalloc(1, sizeof *admin);
	int fd = -1;

	admin->callbacks = *callbacks;
	if (!listener_open("admin", listen, &fd, &admin->address, err))
		goto fail;
	admin->server =
	    MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ERROR_LOG, 0,
		NULL, NULL, on_request, admin, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)CONNECTION_SECONDS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_END);
	if (admin->server)
		return admin;
	err_set(err, ERR_FATAL, "[admin] listen = %s: no HTTP server: %s", listen, strerror(errno));
	close(fd);
fail:
	admin_stop(admin);
	return NULL;
}

void admin_stop(struct admin *admin)
{
	if (!admin)
		return;
	if (admin->server)
		MHD_stop_daemon(admin->server);
	free(admin->address);
	free(admin);
}

const char *admin_address(const struct admin *admin)
{
	return admin->address;
}
