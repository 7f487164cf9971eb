#pragma once
/*
 * The HTTP interface of applications and operators (docs/reference/api.md and openapi.json), on a
 * listener of its own.
 *
 * Messages are checked (relay/lookback/route.h), become records of the section's look-back topic,
 * and are answered when the broker has acknowledged the records. The interface needs neither a
 * reader nor a checker in this process; it reads the state of ids from the section's database.
 *
 * Threads: those of a gate, which looks at heads and hands requests to eight servers of
 * libmicrohttpd, which read, judge and answer (gate.h); one for each cluster that a [lookback]
 * section names, with its producer (api_sender.h); one for each database (api_database.h); four
 * for the calls of operators that take several queries (api_worker.h). A request that waits for the
 * latter three holds no thread of a server. One looks at the process once a second (api_watch.h).
 *
 * Bounds: 1024 connections, of which one address has at most 512, one request each; 16 KiB of head;
 * a body of [api] max_body; 64 MiB of bodies at once, or two of the largest. A head arrives within
 * 10 s, a request within [api] arrival; an answer comes within 10 s of a request that is there (a
 * question to the database: 20 s) and is read within 30 s.
 */
#include <jansson.h>
#include "admin.h"
#include "topic_metadata.h"
#include "config.h"
#include "deliver.h"
#include "listener.h"
#include "pause_watch.h"

struct api;

extern const struct metric_table api_metric_table;

/* Makes all checks of the configuration: {"failed", "complete", "findings"}. Blocks for seconds. */
typedef json_t *api_checks(const struct config *config);

/* The parts of the process that the interface shows and uses. They outlive the interface. */
struct api_parts {
	const struct config *config; /* has [api] listen */
	const char *process;         /* the name of the process, as in outbox.publisher's leases */
	/* As config->kafka: one at least for each cluster that a [lookback] section names. */
	struct topic_metadata *const *topic_metadata;
	struct deliver *const *delivers; /* as config->delivers; NULL: none runs in this process */
	struct pause_watch *pauses;      /* of these; NULL: none, or no [postgres] section */
	/* As of admin_callbacks: is the process ready? */
	admin_probe *ready;
	void *context;
	api_checks *checks;
	/*
	 * A job was stored in this database, or is to go on: a thread of the process takes it at
	 * once. Any thread may call it; it does not block.
	 */
	void (*wake_jobs)(void *context, const struct postgres_settings *postgres);
};

/*
 * The listener is bound to [api] listen; its socket is taken over when the servers start.
 * ERR_CONFIG: a list of destinations that cannot be read. Neither Kafka nor Postgres has to be
 * there.
 */
struct api *api_start(struct listener *listener, const struct api_parts *parts, struct err *err);

/*
 * Takes no new connection and no new request, answers those that were taken, and frees it all: 10 s
 * at most, if a broker or a database is away. To be called before the topic metadata is destroyed.
 * NULL is fine.
 */
void api_stop(struct api *api);

/* Takes the tokens of another configuration, which are copied. */
void api_reload(struct api *api, const struct config *config);

/* "127.0.0.1:9188", as it was bound; owned by api. */
const char *api_address(const struct api *api);
