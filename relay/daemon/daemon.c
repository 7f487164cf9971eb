/*
 * `outbox-relay run`: start in the order of the layers, loop, reload, stop in reverse. Begin at
 * daemon_run; start_daemon has the order of the start, run_main_loop the waiting, finish_daemon the
 * stop.
 */
#include "daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include "admin.h"
#include "api.h"
#include "topic_metadata.h"
#include "checks.h"
#include "cleanup.h"
#include "client_files.h"
#include "clock.h"
#include "config.h"
#include "deliver_check.h"
#include "delivers.h"
#include "job_worker.h"
#include "doctor.h"
#include "publishers.h"
#include "epoch_check.h"
#include "kafka_conf.h"
#include "upkeep_worker.h"
#include "logging.h"
#include "listener.h"
#include "lookbacks.h"
#include "metrics.h"
#include "service.h"
#include "signals.h"
#include "text.h"
#include "topic_checks.h"

enum {
	TURN_MS = 1000,             /* the loop turns at least so often */
	STALLED_MS = 10000,         /* for the main loop, and for a shard worker */
	UPKEEP_STALLED_MS = 600000, /* a statement of upkeep may take its time */
	HANDOVER_SPARE_MS = 5000,
	MOST_FDS = 1024,
	EXIT_NOT_HANDED_OVER = 75,
};

static struct process_metrics {
	struct metric *build_info, *up, *start_time;
} process_metrics;
#define SERIES(member) METRIC_FIELD(struct process_metrics, member)

static const struct metric_row process_rows[] = {
    {"relay_build_info", METRIC_GAUGE, SERIES(build_info),
	"Always 1; the label is the version of the program.",
	.labels = {{"version", "the version"}}},
    {"relay_up", METRIC_GAUGE, SERIES(up), "1 while the publishers run, 0 while they stop."},
    {"relay_start_time_seconds", METRIC_GAUGE, SERIES(start_time),
	"Time at which the process started to publish, in seconds since 1970."},
};

const struct metric_table process_metric_table = {
    .title = "The process",
    .about = "Metrics of the process as a whole.",
    METRIC_ROWS_OF(process_rows),
};

struct daemon {
	const struct daemon_options *options;
	struct config *config;
	struct config *fresh; /* from the newest reload; NULL: none */
	int signal_fd, event_fd;
	struct topic_metadata **topic_metadata; /* as config->kafka; NULL: no publisher uses it */
	struct topic_checks **topic_checks;     /* the same */
	struct upkeep_worker **upkeep_workers;  /* as config->postgres; NULL: nothing uses it */
	struct doorbell **doorbells;            /* the same for publishers; NULL with --drain */
	struct publishers *publishers;
	/* As config->postgres; NULL: no publisher, no [api], or --drain. */
	struct job_worker **replays, **verifications; /* by [postgres] section; as redrives */
	struct job_worker *redrives;                  /* NULL: no database or [api], or --drain */
	struct lookbacks *lookbacks;                  /* NULL: none, or not with --drain */
	struct delivers *delivers;                    /* the same */
	struct listener admin_listener, api_listener; /* until admin and api take them over */
	struct admin *admin;
	struct api *api;       /* NULL: [api] does not listen */
	atomic_bool has_begun; /* the parts that probes check exist */
	char *owner;
	pthread_t epoch_check; /* if checks_epochs */
	bool checks_epochs;
	bool stopping;
	int64_t stop_by, watchdog_at;
	const char *hurry;       /* why stop_by is when it is */
	bool others_linger;      /* others_ended was false at stop_by */
	_Atomic int64_t turn_ms; /* last turn of the main loop, for /livez */
};

/* --- callbacks of the endpoint --------------------------------------------------------------- */

static bool upkeep_workers_live(struct daemon *daemon, int64_t now, struct text *report)
{
	bool all = true;

	for (int i = 0; i < daemon->config->postgres_count; i++) {
		struct upkeep_worker_status status;
		bool live;

		if (!daemon->upkeep_workers[i])
			continue;
		status = upkeep_worker_status(daemon->upkeep_workers[i]);
		live = now - status.turn_ms < UPKEEP_STALLED_MS;
		text_addf(report, "[%s] upkeep of postgres %s: last turn %" PRId64 " ms ago\n",
		    live ? "+" : "-", daemon->config->postgres[i].name, now - status.turn_ms);
		all &= live;
	}
	return all;
}

static bool is_daemon_live(void *context, struct text *report)
{
	struct daemon *daemon = context;
	int64_t now = clock_ms();
	int64_t age = now - atomic_load(&daemon->turn_ms);
	bool live = age < STALLED_MS;

	/* The start waits for databases and brokers: a restart would not help. */
	if (!atomic_load(&daemon->has_begun)) {
		text_add(report, "[+] starting\n");
		return true;
	}
	text_addf(report, "[%s] main loop: last turn %" PRId64 " ms ago\n", live ? "+" : "-", age);
	live &= publishers_live(daemon->publishers, now, report);
	live &= upkeep_workers_live(daemon, now, report);
	if (daemon->lookbacks)
		live &= lookbacks_live(daemon->lookbacks, now, report);
	if (daemon->delivers)
		live &= delivers_live(daemon->delivers, now, report);
	return live;
}

/* Shows problems of upkeep, which stop no message. */
static void show_upkeep_workers(struct daemon *daemon, struct text *report)
{
	for (int i = 0; i < daemon->config->postgres_count; i++) {
		struct upkeep_worker_status status;
		const char *trouble;

		if (!daemon->upkeep_workers[i])
			continue;
		status = upkeep_worker_status(daemon->upkeep_workers[i]);
		trouble = status.error[0] ? status.error : status.problem;
		text_addf(report, "[%s] upkeep of postgres %s%s%s\n", trouble[0] ? "!" : "+",
		    daemon->config->postgres[i].name, trouble[0] ? ": " : "", trouble);
	}
}

/* Shows the doorbells: one that is off makes messages later and rest dearer, and stops nothing. */
static void show_doorbells(struct daemon *daemon, struct text *report)
{
	for (int i = 0; i < daemon->config->postgres_count; i++) {
		if (!daemon->doorbells[i])
			continue;
		struct doorbell_status status = doorbell_status(daemon->doorbells[i]);
		const struct state_row *state = &bell_states.rows[status.bell.state];
		bool off = status.bell.state == BELL_OFF && status.problem[0];
		bool distrust = status.bell.state == BELL_DISTRUST;

		text_addf(report, "[%s] doorbell of postgres %s: %s%s%s, missed %" PRId64 "\n",
		    distrust ? "!" : "+", daemon->config->postgres[i].name, state->name,
		    off || distrust ? ": " : "",
		    off        ? status.problem
		    : distrust ? state->meaning
			       : "",
		    status.bell.missed);
	}
}

static bool topics_open(struct daemon *daemon, struct text *report)
{
	OWNED(text_finish) struct text closed = {0};
	int count = 0;

	for (int i = 0; i < daemon->config->kafka_count; i++)
		if (daemon->topic_checks[i])
			count += topic_checks_closed(daemon->topic_checks[i], &closed);
	for (const char *at = text_string(&closed); *at;) {
		size_t length = strcspn(at, "\n");

		text_add(report, "[-] ");
		text_append(report, at, length);
		text_add(report, " (safety = strict)\n");
		at += length + 1;
	}
	return count == 0;
}

static bool is_daemon_ready(void *context, struct text *report)
{
	struct daemon *daemon = context;
	bool ready;

	/* Until then the parts below do not exist. */
	if (!atomic_load(&daemon->has_begun)) {
		text_add(report, "[-] starting\n");
		return false;
	}
	ready = publishers_ready(daemon->publishers, report);
	ready &= topics_open(daemon, report);
	if (daemon->lookbacks)
		ready &= lookbacks_ready(daemon->lookbacks, report);
	if (daemon->delivers)
		ready &= delivers_ready(daemon->delivers, report);
	show_doorbells(daemon, report);
	show_upkeep_workers(daemon, report);
	return ready;
}

/* --- start ------------------------------------------------------------------------------------ */

static bool uses_postgres(const struct config *config, int place)
{
	for (int i = 0; i < config->publisher_count; i++)
		if (config->publishers[i].settings.postgres == &config->postgres[place])
			return true;
	for (int i = 0; i < config->lookback_count; i++)
		if (config->lookbacks[i].postgres == &config->postgres[place])
			return true;
	return false;
}

static bool uses_kafka(const struct config *config, int place)
{
	for (int i = 0; i < config->publisher_count; i++)
		if (config->publishers[i].settings.kafka == &config->kafka[place])
			return true;
	for (int i = 0; i < config->lookback_count; i++)
		if (config->lookbacks[i].kafka == &config->kafka[place])
			return true;
	return false;
}

static void *warn_of_epochs(void *context)
{
	struct err err;

	(void)context;
	if (!epoch_check(&err))
		log_warn("epochs_unseen", {"error", LOG_TEXT(err.message)},
		    {"consequence",
			LOG_TEXT(
			    "records may be published twice when a leader dies; publishers with "
			    "delivery = exactly-once are refused")},
		    {"cure", LOG_TEXT("run a version of librdkafka that the documentation names")});
	return NULL;
}

/*
 * Delivery stays at least once without epochs, so the check only warns, and the start does not wait
 * for it: it takes longer than everything else that comes before the first record. With
 * exactly-once, kafka_conf_check has waited for it already.
 */
static void begin_epoch_check(struct daemon *daemon)
{
	bool used = false;
	sigset_t all, before;

	for (int i = 0; i < daemon->config->kafka_count; i++)
		used |= uses_kafka(daemon->config, i);
	if (!used)
		return;

	/* signals are for the main thread, which blocks them later */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	daemon->checks_epochs =
	    pthread_create(&daemon->epoch_check, NULL, warn_of_epochs, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!daemon->checks_epochs)
		warn_of_epochs(NULL);
}

/*
 * Raises the soft limit, which exists for programs that use select: connections count against it.
 */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)!setrlimit(RLIMIT_NOFILE, &limit);
}

/* Binds the ports first: an occupied port ends the start before other processes notice anything. */
static bool bind_listeners(struct daemon *daemon, struct err *err)
{
	const struct config *config = daemon->config;

	return (!config->admin_listen[0] ||
		   listener_open("admin", config->admin_listen, &daemon->admin_listener, err)) &&
	       (!config->api.listen[0] ||
		   listener_open("api", config->api.listen, &daemon->api_listener, err));
}

static void warn_of_files(const struct config *config)
{
	for (const char *at = text_string(&config->warnings); *at;) {
		size_t length = strcspn(at, "\n");
		owned_text char *line = xformat("%.*s", (int)length, at);

		log_warn("file_open_to_others", {"file", LOG_TEXT(line)},
		    {"consequence", LOG_TEXT("every user of this machine can read its secrets")});
		at += length + (at[length] == '\n');
	}
}

static bool load_configuration(struct daemon *daemon, struct err *err)
{
	daemon->config = config_load(daemon->options->config_path, err);
	if (!daemon->config)
		return false;
	log_configure(daemon->config->log_level, daemon->config->log_format);
	config_use_password_commands(daemon->config);
	/* A wrong property ends the start before ports are bound or servers connected to. */
	for (int i = 0; i < daemon->config->kafka_count; i++) {
		const struct kafka_settings *kafka = &daemon->config->kafka[i];

		if (!kafka_conf_check(kafka, config_has_transactions(daemon->config, kafka), err))
			return false;
	}
	raise_file_limit();
	if (!bind_listeners(daemon, err))
		return false;
	warn_of_files(daemon->config);
	begin_epoch_check(daemon);
	return true;
}

static bool check_databases(struct daemon *daemon, struct checks *checks, struct err *err)
{
	for (int i = 0; i < daemon->config->postgres_count; i++)
		if (uses_postgres(daemon->config, i) &&
		    !checks_postgres(checks, &daemon->config->postgres[i], err))
			return err_prefix(err, "postgres %s", daemon->config->postgres[i].name);
	if (!checks_verdict(checks, 0, SAFETY_WARN, err))
		return false;
	preflight_log(&checks->report);
	return true;
}

static void log_away(
    const struct kafka_settings *kafka, struct topic_metadata *metadata, const struct err *away)
{
	bool logged;

	/* The log has a line kafka_refused with the reason and the cure. */
	if (topic_metadata_cure(metadata, &logged) && logged)
		return;
	log_warn("kafka_away", {"kafka", LOG_TEXT(kafka->name)}, {"error", LOG_TEXT(away->message)},
	    {"consequence", LOG_TEXT("rows wait until a broker answers")});
}

/* Brokers that are away do not stop the start; a problem of a topic may be fixed while we run. */
static bool check_cluster(struct daemon *daemon, struct checks *checks, int place, struct err *err)
{
	const struct kafka_settings *kafka = &daemon->config->kafka[place];
	enum safety safety = checks_safety(daemon->config, kafka);
	struct topic_metadata *metadata = daemon->topic_metadata[place];
	struct preflight_finding *findings;
	int first = checks->report.count;
	struct err away;

	if (!checks_kafka(checks, kafka, metadata, &away) ||
	    (safety == SAFETY_STRICT && !checks_topics(checks, kafka, metadata, &away)))
		log_away(kafka, metadata, &away);
	findings = checks->report.findings + first;
	for (int i = 0; i < checks->report.count - first; i++)
		if (findings[i].severity == PREFLIGHT_FAIL)
			findings[i].severity = PREFLIGHT_WARN;
	if (!checks_verdict(checks, first, safety, err))
		return false;
	preflight_log(&(const struct preflight){findings, checks->report.count - first});
	return true;
}

/* Topics that are known to be published to are checked before their next message comes. */
static void note_topics(struct daemon *daemon, const struct checks *checks)
{
	for (int i = 0; i < daemon->config->publisher_count; i++) {
		const struct checks_publisher *publisher = &checks->publishers[i];
		struct topic_checks *topics =
		    daemon
			->topic_checks[publisher->section->settings.kafka - daemon->config->kafka];

		for (int j = 0; j < publisher->topic_count; j++)
			topic_checks_allow(
			    topics, publisher->topics[j], publisher->section->settings.safety);
	}
}

static bool start_clusters(struct daemon *daemon, struct checks *checks, struct err *err)
{
	for (int i = 0; i < daemon->config->kafka_count; i++) {
		const struct kafka_settings *kafka = &daemon->config->kafka[i];

		if (!uses_kafka(daemon->config, i))
			continue;
		daemon->topic_metadata[i] = topic_metadata_create(kafka, err);
		if (!daemon->topic_metadata[i] || !check_cluster(daemon, checks, i, err))
			return false;
		daemon->topic_checks[i] =
		    topic_checks_create(daemon->topic_metadata[i], kafka, err);
		if (!daemon->topic_checks[i])
			return false;
	}
	return true;
}

static bool start_upkeep_workers(struct daemon *daemon, struct err *err)
{
	for (int i = 0; i < daemon->config->postgres_count; i++) {
		if (!uses_postgres(daemon->config, i))
			continue;
		daemon->upkeep_workers[i] =
		    upkeep_worker_start(daemon->config, &daemon->config->postgres[i],
			daemon->doorbells[i], daemon->owner, daemon->event_fd, err);
		if (!daemon->upkeep_workers[i])
			return false;
	}
	return true;
}

static bool publishes_from(const struct config *config, const struct postgres_settings *postgres)
{
	for (int i = 0; i < config->publisher_count; i++)
		if (config->publishers[i].settings.postgres == postgres)
			return true;
	return false;
}

static bool has_dead_letters(const struct config *config)
{
	for (int i = 0; i < config->deliver_count; i++)
		if (config->delivers[i].dead_letter_topic[0])
			return true;
	return false;
}

/*
 * Jobs that the HTTP interface has stored. They take sessions to each database, so only a process
 * with an interface of its own carries them out. A drain ends with its own messages. Each kind has
 * a thread of its own for each database: a long verification holds up no replay.
 */
static bool start_jobs(struct daemon *daemon, struct err *err)
{
	const struct config *config = daemon->config;

	if (config->api.listen[0] == '\0' || daemon->options->drain)
		return true;
	daemon->replays = xcalloc((size_t)config->postgres_count, sizeof(void *));
	daemon->verifications = xcalloc((size_t)config->postgres_count, sizeof(void *));
	for (int i = 0; i < config->postgres_count; i++) {
		const struct postgres_settings *postgres = &config->postgres[i];

		if (!publishes_from(config, postgres))
			continue;
		daemon->replays[i] =
		    job_worker_start(&replay_jobs, config, postgres, daemon->topic_metadata, err);
		if (!daemon->replays[i])
			return false;
		daemon->verifications[i] = job_worker_start(
		    &verification_jobs, config, postgres, daemon->topic_metadata, err);
		if (!daemon->verifications[i])
			return false;
	}
	/* the interface stores redrives where it stores the audit */
	if (config->postgres_count == 0 || !has_dead_letters(config))
		return true;
	daemon->redrives = job_worker_start(
	    &redrive_jobs, config, &config->postgres[0], daemon->topic_metadata, err);
	return daemon->redrives != NULL;
}

/* The HTTP interface calls it. Every kind is woken: a look that finds no job costs one query. */
static void wake_job_workers(void *context, const struct postgres_settings *postgres)
{
	struct daemon *daemon = context;
	ptrdiff_t place = postgres - daemon->config->postgres;

	job_worker_wake(daemon->replays ? daemon->replays[place] : NULL);
	job_worker_wake(daemon->verifications ? daemon->verifications[place] : NULL);
	if (place == 0)
		job_worker_wake(daemon->redrives);
}

/* A drain ends when everything is published: it never sleeps. */
static bool start_doorbells(struct daemon *daemon, struct err *err)
{
	for (int i = 0; i < daemon->config->postgres_count && !daemon->options->drain; i++) {
		const struct postgres_settings *postgres = &daemon->config->postgres[i];

		if (!publishes_from(daemon->config, postgres))
			continue;
		daemon->doorbells[i] = doorbell_start(postgres, err);
		if (!daemon->doorbells[i])
			return false;
	}
	return true;
}

static bool start_admin(struct daemon *daemon, struct err *err)
{
	const struct admin_callbacks callbacks = {is_daemon_live, is_daemon_ready, daemon};

	if (daemon->config->admin_listen[0] == '\0')
		return true;
	daemon->admin = admin_start(&daemon->admin_listener, daemon->config, &callbacks, err);
	if (daemon->admin)
		log_info("admin_listens", {"address", LOG_TEXT(admin_address(daemon->admin))});
	return daemon->admin != NULL;
}

static bool start_api(struct daemon *daemon, struct err *err)
{
	const struct api_parts parts = {.config = daemon->config,
	    .process = daemon->owner,
	    .topic_metadata = daemon->topic_metadata,
	    .delivers = daemon->delivers ? delivers_sections(daemon->delivers) : NULL,
	    .pauses = daemon->delivers ? delivers_pauses(daemon->delivers) : NULL,
	    .ready = is_daemon_ready,
	    .context = daemon,
	    .checks = doctor_report_json,
	    .wake_jobs = wake_job_workers};

	if (daemon->config->api.listen[0] == '\0')
		return true;
	daemon->api = api_start(&daemon->api_listener, &parts, err);
	if (daemon->api)
		log_info("api_listens", {"address", LOG_TEXT(api_address(daemon->api))});
	return daemon->api != NULL;
}

/* host:pid:random names the process in the log table; a long host name is cut, not refused. */
static char *make_owner_name(void)
{
	char host[64] = "";

	if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
		text_copy(host, sizeof host, "host");
	return xformat("%s:%d:%08x", host, (int)getpid(), (unsigned)clock_random());
}

static bool start_publishers(struct daemon *daemon, const struct checks *checks, struct err *err)
{
	owned_text int *shards = xcalloc((size_t)daemon->config->publisher_count, sizeof *shards);

	for (int i = 0; i < daemon->config->publisher_count; i++)
		shards[i] = checks->publishers[i].shards;
	return publishers_start(daemon->publishers, shards, err);
}

static bool start_lookbacks(struct daemon *daemon, struct err *err)
{
	if (daemon->config->lookback_count == 0 || daemon->options->drain)
		return true;
	daemon->lookbacks = lookbacks_start(daemon->config, daemon->owner, daemon->event_fd, err);
	return daemon->lookbacks != NULL;
}

static bool start_delivers(struct daemon *daemon, struct err *err)
{
	if (daemon->config->deliver_count == 0 || daemon->options->drain)
		return true;
	daemon->delivers = delivers_start(daemon->config, daemon->owner, daemon->event_fd, err);
	return daemon->delivers != NULL;
}

static void announce_start(const struct daemon *daemon)
{
	metric_series_all(&process_metric_table, NULL, &process_metrics, NULL);
	metric_set(METRIC_LABELLED(process_metrics.build_info, RELAY_VERSION), 1);
	metric_set(process_metrics.up, 1);
	metric_set(process_metrics.start_time, (double)clock_wall_us() / 1e6);
	log_info("started", {"version", LOG_TEXT(RELAY_VERSION)},
	    {"owner", LOG_TEXT(daemon->owner)},
	    {"publishers", LOG_INT(daemon->config->publisher_count)},
	    {"drain", LOG_TEXT(daemon->options->drain ? "true" : "false")});
	service_notify("READY=1");
}

static bool start_daemon(struct daemon *daemon, struct checks *checks, struct err *err)
{
	const struct config *config = daemon->config;
	struct publishers_options options;

	/* Probes are answered from here on. */
	if (!start_admin(daemon, err) || !check_databases(daemon, checks, err))
		return false;
	daemon->signal_fd = signals_open(err);
	if (daemon->signal_fd < 0)
		return false;
	daemon->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (daemon->event_fd < 0)
		return err_set(err, ERR_FATAL, "no eventfd: %s", strerror(errno));
	daemon->topic_metadata = xcalloc((size_t)config->kafka_count, sizeof(void *));
	daemon->topic_checks = xcalloc((size_t)config->kafka_count, sizeof(void *));
	daemon->upkeep_workers = xcalloc((size_t)config->postgres_count, sizeof(void *));
	daemon->doorbells = xcalloc((size_t)config->postgres_count, sizeof(void *));
	daemon->owner = make_owner_name();
	if (!start_clusters(daemon, checks, err) || !start_doorbells(daemon, err) ||
	    !start_upkeep_workers(daemon, err))
		return false;
	options = (struct publishers_options){config, daemon->topic_metadata, daemon->topic_checks,
	    daemon->upkeep_workers, daemon->doorbells, daemon->owner, daemon->options->drain};
	daemon->publishers = publishers_create(&options);

	/* The API comes after the parts that it shows, pauses and wakes; publishers come last. */
	if (!start_lookbacks(daemon, err) || !start_delivers(daemon, err) ||
	    !start_jobs(daemon, err) || !start_api(daemon, err))
		return false;
	atomic_store(&daemon->turn_ms, clock_ms());
	atomic_store(&daemon->has_begun, true);
	note_topics(daemon, checks);
	return start_publishers(daemon, checks, err);
}

/* --- reload ------------------------------------------------------------------------------------
 */

/* Logs, line by line, the settings of the new file that a running process does not take. */
static void log_fixed(const struct text *fixed)
{
	for (const char *at = text_string(fixed); *at;) {
		size_t length = strcspn(at, "\n");
		owned_text char *line = xformat("%.*s", (int)length, at);

		log_warn("reload_incomplete", {"setting", LOG_TEXT(line)},
		    {"cure", LOG_TEXT("restart the process")});
		at += length + (at[length] == '\n');
	}
}

static void apply_configuration(struct daemon *daemon, struct config *fresh)
{
	log_configure(fresh->log_level, fresh->log_format);
	publishers_retune(daemon->publishers, fresh);
	for (int i = 0; i < daemon->config->postgres_count; i++) {
		const struct postgres_settings *settings =
		    config_find_postgres(fresh, daemon->config->postgres[i].name);

		if (daemon->upkeep_workers[i] && settings)
			upkeep_worker_retune(daemon->upkeep_workers[i], settings);
		if (daemon->doorbells[i] && settings)
			doorbell_retune(daemon->doorbells[i], settings);
	}
	if (daemon->delivers)
		delivers_change_rules(daemon->delivers, fresh);
	if (daemon->api)
		api_reload(daemon->api, fresh);
	/* The configuration of the former reload goes last: until here the publishers had it. */
	config_destroy(daemon->fresh);
	daemon->fresh = fresh;
}

/* Type=notify-reload of systemd ignores a message without its time. */
static void notify_reload(void)
{
	owned_text char *state = xformat("RELOADING=1\nMONOTONIC_USEC=%" PRId64, clock_us());

	service_notify(state);
}

static void reload_configuration(struct daemon *daemon)
{
	OWNED(text_finish) struct text fixed = {0};
	struct config *fresh;
	struct err err;

	notify_reload();
	client_files_check();
	fresh = config_load(daemon->options->config_path, &err);
	/* before anything is applied: a broken file of rules changes nothing */
	if (fresh && daemon->delivers && !delivers_check_rules(daemon->delivers, fresh, &err)) {
		config_destroy(fresh);
		fresh = NULL;
	}
	if (fresh) {
		config_compare(daemon->config, fresh, &fixed);
		apply_configuration(daemon, fresh);
		warn_of_files(fresh);
		log_fixed(&fixed);
		log_info("reloaded", {"file", LOG_TEXT(daemon->options->config_path)});
	} else {
		log_error("reload_refused", {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("the configuration stays as it was")});
	}
	service_notify("READY=1");
}

/* --- the loop ----------------------------------------------------------------------------------
 */

static int64_t longest_stop_ms(const struct config *config)
{
	int64_t longest = 0;

	for (int i = 0; i < config->publisher_count; i++)
		if (config->publishers[i].settings.lease_ms > longest)
			longest = config->publishers[i].settings.lease_ms;
	for (int i = 0; i < config->deliver_count; i++)
		if (config->delivers[i].drain_ms > longest)
			longest = config->delivers[i].drain_ms;
	return longest;
}

/* The next owner takes the remaining work over once the lease is over, as after a crash. */
static void end_daemon_at_once(const char *why)
{
	log_warn("ended_at_once", {"why", LOG_TEXT(why)},
	    {"consequence", LOG_TEXT("shards that were not handed over are free when their leases "
				     "are over")});
	_exit(EXIT_NOT_HANDED_OVER);
}

static void begin_daemon_stop(struct daemon *daemon)
{
	daemon->stopping = true;
	daemon->stop_by = clock_ms() + longest_stop_ms(daemon->config) + HANDOVER_SPARE_MS;
	daemon->hurry = "the handover took too long";

	service_notify("STOPPING=1");
	metric_set(process_metrics.up, 0);

	/* All parts end side by side, within the longest of their times (stop_by). */
	publishers_stop(daemon->publishers);
	if (daemon->lookbacks)
		lookbacks_stop(daemon->lookbacks);
	if (daemon->delivers)
		delivers_stop(daemon->delivers);
	for (int i = 0; i < daemon->config->postgres_count; i++) {
		job_worker_stop(daemon->replays ? daemon->replays[i] : NULL);
		job_worker_stop(daemon->verifications ? daemon->verifications[i] : NULL);
	}
	job_worker_stop(daemon->redrives);
	for (int i = 0; i < daemon->config->postgres_count; i++)
		if (daemon->upkeep_workers[i])
			upkeep_worker_stop(daemon->upkeep_workers[i]);
}

static void on_end(struct daemon *daemon)
{
	/* The main loop then waits no longer. */
	if (daemon->stopping) {
		daemon->stop_by = 0;
		daemon->hurry = "a second signal";
		return;
	}
	log_info("stopping", {"owner", LOG_TEXT(daemon->owner)});
	begin_daemon_stop(daemon);
}

static void serve_signals(struct daemon *daemon)
{
	for (;;)
		switch (signals_read(daemon->signal_fd)) {
		case SIGNALS_NONE:
			return;
		case SIGNALS_RELOAD:
			reload_configuration(daemon);
			break;
		case SIGNALS_END:
			on_end(daemon);
			break;
		}
}

/* Notifies the watchdog of the service manager, but only while every loop turns. */
static void serve_watchdog(struct daemon *daemon, int64_t now)
{
	OWNED(text_finish) struct text report = {0};
	int64_t interval = service_watchdog_ms();

	if (interval == 0 || now < daemon->watchdog_at)
		return;
	/* Three times an interval, so that a late turn costs no restart. */
	daemon->watchdog_at = now + interval / 3;
	if (is_daemon_live(daemon, &report))
		service_notify("WATCHDOG=1");
	else
		log_error("loop_stalled", {"report", LOG_TEXT(text_string(&report))},
		    {"consequence", LOG_TEXT("the service manager gets no watchdog message and "
					     "will restart the process")});
}

static void wait_for_daemon_events(struct daemon *daemon)
{
	struct pollfd fds[MOST_FDS] = {
	    {.fd = daemon->signal_fd, .events = POLLIN},
	    {.fd = daemon->event_fd, .events = POLLIN},
	};
	int count = 2 + publishers_fds(daemon->publishers, fds + 2, MOST_FDS - 2);
	int64_t watchdog = service_watchdog_ms() / 3;
	eventfd_t told;

	poll(fds, (nfds_t)count, (int)(watchdog > 0 && watchdog < TURN_MS ? watchdog : TURN_MS));
	(void)eventfd_read(daemon->event_fd, &told); /* fails when nobody called */
}

/*
 * Have the parts ended that may be left behind when they take too long? Nothing waits for them
 * elsewhere.
 */
static bool others_ended(const struct daemon *daemon)
{
	if (daemon->lookbacks && !lookbacks_are_over(daemon->lookbacks))
		return false;
	if (daemon->delivers && !delivers_are_over(daemon->delivers))
		return false;
	for (int i = 0; i < daemon->config->postgres_count; i++)
		if (daemon->upkeep_workers[i] &&
		    !upkeep_worker_status(daemon->upkeep_workers[i]).ended)
			return false;
	return true;
}

/* A process without publishers delivers until it has to end. */
static bool is_drained(const struct daemon *daemon)
{
	return (daemon->config->publisher_count > 0 || daemon->options->drain) &&
	       publishers_is_over(daemon->publishers);
}

/* True: drained, or handed over after a signal that interrupted nothing. */
static bool run_main_loop(struct daemon *daemon, struct err *err)
{
	bool drained = false;

	while (
	    !(daemon->stopping && publishers_is_over(daemon->publishers) && others_ended(daemon))) {
		int64_t now;

		wait_for_daemon_events(daemon);
		now = clock_ms();
		atomic_store(&daemon->turn_ms, now);
		serve_signals(daemon);
		publishers_step(daemon->publishers, now);
		serve_watchdog(daemon, now);

		if (!daemon->stopping && is_drained(daemon)) {
			drained = true;
			begin_daemon_stop(daemon);
		}
		if (!daemon->stopping || now < daemon->stop_by)
			continue;
		/* A join could wait for ever; the lease ends by itself. */
		if (!publishers_is_over(daemon->publishers))
			end_daemon_at_once(daemon->hurry);
		daemon->others_linger = !others_ended(daemon);
		break;
	}

	bool failed = publishers_is_refused(daemon->publishers, err) ||
		      publishers_is_abandoned(daemon->publishers, err);
	log_info("stopped", {"owner", LOG_TEXT(daemon->owner)},
	    {"drained", LOG_TEXT(drained && !failed ? "true" : "false")});
	if (failed)
		return false;
	return drained || !daemon->options->drain ||
	       err_set(err, ERR_RETRY, "ended by a signal before everything was published");
}

/* --- stop --------------------------------------------------------------------------------------
 */

static void wait_for_publishers(struct daemon *daemon)
{
	publishers_stop(daemon->publishers);
	while (!publishers_is_over(daemon->publishers)) {
		wait_for_daemon_events(daemon);
		publishers_step(daemon->publishers, clock_ms());
	}
}

/* Stops in reverse order; a part that was never started is NULL. */
static void finish_daemon(struct daemon *daemon)
{
	const struct config *config = daemon->config;

	/* First: requests need the metadata of the clusters and the [deliver] sections. */
	api_stop(daemon->api);
	if (daemon->publishers)
		wait_for_publishers(daemon);

	/* Probes look at the parts below, so they end before these. */
	admin_stop(daemon->admin);
	listener_close(&daemon->admin_listener);
	listener_close(&daemon->api_listener);

	if (daemon->delivers)
		delivers_stop(daemon->delivers);
	delivers_destroy(daemon->delivers);
	if (daemon->lookbacks)
		lookbacks_stop(daemon->lookbacks);
	lookbacks_destroy(daemon->lookbacks);
	publishers_destroy(daemon->publishers);
	for (int i = 0; daemon->replays && i < config->postgres_count; i++) {
		job_worker_destroy(daemon->replays[i]);
		job_worker_destroy(daemon->verifications[i]);
	}
	job_worker_destroy(daemon->redrives);

	for (int i = 0; daemon->upkeep_workers && i < config->postgres_count; i++)
		if (daemon->upkeep_workers[i]) {
			upkeep_worker_stop(daemon->upkeep_workers[i]);
			upkeep_worker_join(daemon->upkeep_workers[i]);
		}
	for (int i = 0; daemon->doorbells && i < config->postgres_count; i++)
		doorbell_destroy(daemon->doorbells[i]);
	for (int i = 0; daemon->topic_metadata && i < config->kafka_count; i++) {
		topic_checks_destroy(daemon->topic_checks[i]);
		topic_metadata_destroy(daemon->topic_metadata[i]);
	}

	if (daemon->checks_epochs)
		pthread_join(daemon->epoch_check, NULL);
	free(daemon->replays);
	free(daemon->verifications);
	free(daemon->doorbells);
	free(daemon->upkeep_workers);
	free(daemon->topic_checks);
	free(daemon->topic_metadata);
	free(daemon->owner);
	if (daemon->event_fd >= 0)
		close(daemon->event_fd);
	if (daemon->signal_fd >= 0)
		close(daemon->signal_fd);
	config_destroy(daemon->fresh);
	config_destroy(daemon->config);
}

static void warn_of_postgres(const char *kind, const char *name)
{
	log_warn("postgres_unencrypted", {kind, LOG_TEXT(name)},
	    {"consequence", LOG_TEXT("payloads and passwords can be read on the way")},
	    {"cure", LOG_TEXT("put sslmode=verify-full into the dsn")});
}

/*
 * Warns once at the start, for each section whose payloads and passwords could be read on the way.
 */
static void warn_of_exposed(const struct config *config)
{
	for (int i = 0; i < config->postgres_count; i++)
		if (pg_dsn_is_exposed(config->postgres[i].dsn))
			warn_of_postgres("postgres", config->postgres[i].name);
	for (int i = 0; i < config->check_count; i++)
		if (config->checks[i].transport == CHECK_SQL &&
		    pg_dsn_is_exposed(config->checks[i].dsn))
			warn_of_postgres("check", config->checks[i].name);
	for (int i = 0; i < config->deliver_count; i++)
		if (deliver_dsn_is_exposed(&config->delivers[i]))
			warn_of_postgres("deliver", config->delivers[i].name);

	for (int i = 0; i < config->kafka_count; i++)
		if (kafka_conf_is_exposed(&config->kafka[i]))
			log_warn("kafka_unencrypted", {"kafka", LOG_TEXT(config->kafka[i].name)},
			    {"consequence",
				LOG_TEXT("payloads and passwords can be read on the way")},
			    {"cure", LOG_TEXT("set security.protocol to ssl or sasl_ssl")});
}

bool daemon_run(const struct daemon_options *options, struct err *err)
{
	struct daemon daemon = {.options = options,
	    .signal_fd = -1,
	    .event_fd = -1,
	    .admin_listener = {.fd = -1},
	    .api_listener = {.fd = -1},
	    .turn_ms = clock_ms()};
	struct checks checks = {0};
	bool done = load_configuration(&daemon, err);

	if (done)
		warn_of_exposed(daemon.config);
	if (done) {
		checks_init(&checks, daemon.config);
		checks.starting = true;
		done = start_daemon(&daemon, &checks, err);
		checks_finish(&checks);
	}
	if (done) {
		announce_start(&daemon);
		done = run_main_loop(&daemon, err);
	}
	/* a thread whose statement cannot be cancelled needs everything until the process ends */
	if (!daemon.others_linger)
		finish_daemon(&daemon);
	return done;
}
