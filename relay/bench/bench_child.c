/*
 * Child processes: the measured relay, or a second bench that it is compared with. First the
 * environment of a child, then its start, its end, and its CPU and memory.
 */
#include "bench.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include "clock.h"
#include "command.h"
#include "sql_bench.h"
#include "text.h"

enum { STOP_MS = 15000, VARIABLES = 256, STATUS_UNKNOWN = -1 };

extern char **environ;

/* The child's environment: ours, with the settings of the bench in place of our settings. */
struct variables {
	char *list[VARIABLES];
	int count;
};

static void add_variable(struct variables *variables, char *text)
{
	if (variables->count < VARIABLES - 1)
		variables->list[variables->count++] = text;
	else
		free(text);
}

static void free_variables(struct variables *variables)
{
	for (int i = 0; i < variables->count; i++)
		free(variables->list[i]);
}

/* bootstrap.servers becomes OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS */
static void add_kafka_variable(struct variables *variables, const struct kafka_property *property)
{
	char *text = xformat("OUTBOX_RELAY_KAFKA_%s=%s", property->name, property->value);

	for (char *at = text; *at && *at != '='; at++)
		*at = *at == '.' ? '_' : (char)toupper((unsigned char)*at);
	add_variable(variables, text);
}

static void add_publisher_variables(
    struct variables *variables, const struct publisher_settings *publisher)
{
	/* unsaid, the default depends on the delivery, which the bench changes */
	if (publisher->in_flight_said)
		add_variable(variables, xformat("OUTBOX_RELAY_PUBLISHER_MAX_IN_FLIGHT=%lld",
					    (long long)publisher->max_in_flight));

	add_variable(variables,
	    xformat("OUTBOX_RELAY_PUBLISHER_MEMORY=%lldB", (long long)publisher->memory));
	add_variable(variables,
	    xformat("OUTBOX_RELAY_PUBLISHER_LEASE=%lldms", (long long)publisher->lease_ms));
	/* an earlier version, which `pace` measures too, knows no pace */
	if (publisher->pace != PACE_BALANCED)
		add_variable(variables, xformat("OUTBOX_RELAY_PUBLISHER_PACE=%s",
					    publisher_paces[publisher->pace].name));
	if (publisher->poll_busy_ms != publisher_paces[publisher->pace].poll_busy_ms)
		add_variable(variables, xformat("OUTBOX_RELAY_PUBLISHER_POLL_BUSY=%lldms",
					    (long long)publisher->poll_busy_ms));
	if (publisher->poll_idle_ms != publisher_paces[publisher->pace].poll_idle_ms)
		add_variable(variables, xformat("OUTBOX_RELAY_PUBLISHER_POLL_IDLE=%lldms",
					    (long long)publisher->poll_idle_ms));
	add_variable(variables, xformat("OUTBOX_RELAY_PUBLISHER_ACK_INTERVAL=%lldms",
				    (long long)publisher->ack_interval_ms));
}

static const char *const delivery_words[] = {
    [DELIVERY_AT_LEAST_ONCE] = "at-least-once", [DELIVERY_EXACTLY_ONCE] = "exactly-once"};

static void add_database(struct variables *variables, const struct bench *bench)
{
	if (bench->postgres->dsn[0])
		add_variable(
		    variables, xformat("OUTBOX_RELAY_POSTGRES_DSN=%s", bench->postgres->dsn));
	add_variable(variables, xformat("OUTBOX_RELAY_POSTGRES_SCHEMA=%s", bench->schema));
	if (bench->doorbell)
		add_variable(
		    variables, xformat("OUTBOX_RELAY_POSTGRES_DOORBELL=%s", bench->doorbell));
	add_publisher_variables(variables, bench->publisher);
	add_variable(variables,
	    xformat("OUTBOX_RELAY_PUBLISHER_DELIVERY=%s", delivery_words[bench->delivery]));
}

static void make_variables(struct bench *bench, const char *config, struct variables *variables)
{
	for (char **at = environ; *at; at++)
		/* a setting of the caller would change the relay that is measured */
		if (!text_starts(*at, "OUTBOX_RELAY_") && !text_starts(*at, "DATABASE_URL="))
			add_variable(variables, xstrdup(*at));
	for (int i = 0; i < bench->kafka->property_count; i++)
		add_kafka_variable(variables, &bench->kafka->properties[i]);
	if (bench->schema[0])
		add_database(variables, bench);

	add_variable(variables, xstrdup("OUTBOX_RELAY_LOG_LEVEL=error"));
	if (bench->trace)
		add_variable(variables, xformat("OUTBOX_RELAY_FAULT_TRACE=%s", bench->trace));
	if (config)
		add_variable(variables, xformat("OUTBOX_RELAY_CONFIG=%s", config));
}

/* config: the path of a file with more of the relay's configuration; NULL: none. */
static bool spawn_child(struct bench *bench, struct bench_child *child,
    const char *const *arguments, const char *config, struct err *err)
{
	const char *program = child->is_bench ? "/proc/self/exe" : bench->relay;
	char *words[16] = {(char *)(child->is_bench ? program_name : "outbox-relay")};
	struct variables variables = {0};
	posix_spawnattr_t attributes;
	posix_spawn_file_actions_t actions;
	sigset_t none;
	int failed;

	for (int i = 0; arguments[i] && i < 14; i++)
		words[i + 1] = (char *)arguments[i];
	make_variables(bench, config, &variables);
	posix_spawnattr_init(&attributes);
	/* The child gets its own process group: Ctrl-C reaches only the bench, which stops the
	 * child. */
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawn_file_actions_init(&actions);
	if (child->output > 0)
		posix_spawn_file_actions_adddup2(&actions, child->output, STDOUT_FILENO);
	failed = posix_spawn(&child->pid, program, &actions, &attributes, words, variables.list);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	free_variables(&variables);
	if (!failed)
		return true;
	child->pid = 0;
	return err_set(err, ERR_FATAL, "%s cannot be started: %s", program, strerror(failed));
}

bool bench_child_start(
    struct bench *bench, struct bench_child *child, const char *const *arguments, struct err *err)
{
	const char *sections = child->sections;
	/* The file has no name, and its memory is freed with the last process that has it open. */
	owned_fd int fd = sections ? memfd_create("outbox-bench", 0) : -1;
	owned_text char *path = sections ? xformat("/proc/self/fd/%d", fd) : NULL;
	ssize_t length = sections ? (ssize_t)strlen(sections) : 0;

	/* The relay refuses a configuration that other users can write to. */
	if (sections &&
	    (fd < 0 || fchmod(fd, 0600) != 0 || write(fd, sections, (size_t)length) != length))
		return err_set(err, ERR_FATAL, "the relay's configuration cannot be written: %s",
		    strerror(errno));
	return spawn_child(bench, child, arguments, path, err);
}

bool bench_child_run(
    struct bench *bench, struct bench_child *child, const char *sections, struct err *err)
{
	static const char *const arguments[] = {"run", NULL};

	child->sections = sections;
	return bench_child_start(bench, child, arguments, err);
}

/* 0: the child has ended. */
static double kib_of(const char *path, const char *name)
{
	char value[64];
	int64_t kib;

	bench_proc_value(path, name, value, sizeof value);
	value[strspn(value, "0123456789")] = '\0';
	return text_to_int64(value, 0, INT64_MAX, &kib) ? (double)kib : 0;
}

/*
 * Reads the kernel's high-water mark until shortly before the child's end. ru_maxrss would start
 * with the memory of this process, from which the child was forked.
 */
static void note_peak(struct bench_child *child)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/status", (int)child->pid);

	double peak = kib_of(path, "VmHWM"), own = kib_of(path, "RssAnon");

	child->peak_kib = peak > 0 ? peak : child->peak_kib;
	child->own_kib = own > child->own_kib ? own : child->own_kib;
}

/* Waits until `until_ms` (0: for ever) or an interruption at most. True: the child has ended. */
static bool wait_for_child_end(
    struct bench_child *child, int64_t until_ms, int *ret_status, struct rusage *ret_usage)
{
	for (;;) {
		note_peak(child);

		pid_t ended = wait4(child->pid, ret_status, WNOHANG, ret_usage);

		if (ended == child->pid)
			return true;
		/* ECHILD: it has ended, and somebody else has taken its status */
		if (ended < 0 && errno != EINTR) {
			*ret_status = STATUS_UNKNOWN;
			return true;
		}
		if (until_ms ? clock_ms() > until_ms : bench_interrupted())
			return false;
		usleep(10000);
	}
}

bool bench_child_wait(struct bench_child *child, struct rusage *ret_usage, struct err *err)
{
	int status = 0;

	if (!wait_for_child_end(child, 0, &status, ret_usage)) {
		bench_child_stop(child);
		return bench_goes_on(err);
	}
	child->pid = 0;
	/* such a run may have failed, so its figures are worth nothing */
	if (status == STATUS_UNKNOWN)
		return err_set(err, ERR_FATAL, "the relay ended, and its exit status is unknown");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	return err_set(err, ERR_FATAL, "the relay ended with %s %d; it said why above",
	    WIFEXITED(status) ? "status" : "signal",
	    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static bool read_told_number(int fd, double *ret_number)
{
	owned_file FILE *file = fdopen(fd, "r");

	return file && fscanf(file, "%lf", ret_number) == 1 && *ret_number > 0;
}

bool bench_child_tells(struct bench *bench, struct bench_child *child, const char *const *arguments,
    struct rusage *ret_usage, double *ret_number, struct err *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return err_set(err, ERR_RETRY, "no pipe can be made: %s", strerror(errno));
	child->is_bench = true;
	child->output = ends[1];

	bool good = bench_child_start(bench, child, arguments, err);

	/* the child has its own copy; an open end here would keep the reader from the end */
	close(ends[1]);
	good = good && bench_child_wait(child, ret_usage, err);
	if (!read_told_number(ends[0], ret_number) || !good)
		return !good ? false
			     : err_set(err, ERR_FATAL, "`%s %s` printed no number", program_name,
				   arguments[0]);
	return true;
}

void bench_child_stop(struct bench_child *child)
{
	struct rusage ignored;
	int status;

	if (!child->pid)
		return;
	kill(child->pid, SIGTERM);
	/* a relay that hangs must not keep the bench from removing its schema and topic */
	if (!wait_for_child_end(child, clock_ms() + STOP_MS, &status, &ignored)) {
		kill(child->pid, SIGKILL);
		wait4(child->pid, &status, 0, &ignored);
	}
	child->pid = 0;
}

double bench_cpu_of_usage(const struct rusage *usage)
{
	return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
	       (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

double bench_process_cpu(pid_t pid, const char *name)
{
	char path[64], line[1024];
	clockid_t clock;
	struct timespec time;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);

	owned_file FILE *file = fopen(path, "re");

	if (!file || !fgets(line, sizeof line, file) || !strstr(line, name))
		return -1;
	/* in nanoseconds; /proc has hundredths of a second, too coarse for a run at a low rate */
	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &time))
		return -1;
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

bool bench_child_cpu(struct bench *bench, const struct bench_child *child,
    struct bench_cpu *ret_cpu, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = pg_query(bench->pg, sql_bench_backends, NULL, 0, err);

	if (!rows)
		return false;
	*ret_cpu = (struct bench_cpu){.broker = bench_broker_cpu(bench->kafka)};
	if (child->pid)
		ret_cpu->relay = bench_process_cpu(child->pid, "");
	if (ret_cpu->relay < 0)
		return err_set(err, ERR_FATAL, "the relay ended; it said why above");
	for (int i = 0; i < pg_rows(rows); i++) {
		double seconds = bench_process_cpu((pid_t)pg_int(rows, i, 0), "postgres");

		ret_cpu->backends += seconds > 0 ? seconds : 0;
	}
	return true;
}
