/*
 * A command that prints a password. It runs in a process group of its own, with the relay's
 * environment and none of its files: standard input is empty, standard error is dropped since it
 * may quote the password, and standard output is a pipe. One epoll descriptor becomes readable when
 * output comes, when the command ends (pidfd) or when its time is over (timerfd), so that an event
 * loop waits for it as it waits for a socket.
 */
#include "pg_password.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cleanup.h"
#include "memory.h"
#include "text.h"

extern char **environ;

#define CURE "run it by hand as the relay's user to see its messages"

struct password_source {
	struct password_source *next;
	char *dsn, *command;
	int64_t limit_ms;
};

/* Sources are added and never removed: a reader needs no lock. */
static struct password_source *_Atomic password_sources;

enum { OUTPUT_SIZE = 16384 };

struct pg_password {
	const struct password_source *source;
	pid_t pid; /* 0: it has ended, and its status was collected */
	int status;
	int output, process, timer, events; /* -1: not open */
	size_t length;
	char text[OUTPUT_SIZE];
};

void pg_password_from(const char *dsn, const char *command, int64_t limit_ms)
{
	struct password_source *source = xcalloc(1, sizeof *source);

	*source = (struct password_source){.next = atomic_load(&password_sources),
	    .dsn = xstrdup(dsn),
	    .command = xstrdup(command),
	    .limit_ms = limit_ms};
	atomic_store(&password_sources, source);
}

static const struct password_source *find_password_source(const char *dsn)
{
	const struct password_source *source = atomic_load(&password_sources);

	while (source && strcmp(source->dsn, dsn) != 0)
		source = source->next;
	return source;
}

int64_t pg_password_limit_ms(const char *dsn)
{
	const struct password_source *source = find_password_source(dsn);

	return source ? source->limit_ms : 0;
}

/* --- starting the command ------------------------------------------------------------------ */

/* The new process, between fork and exec: only calls that are safe there. */
static _Noreturn void become_password_command(const char *command, int output)
{
	char *const words[] = {"sh", "-c", (char *)command, NULL};
	sigset_t none;

	/* A relay that is killed cannot kill the command. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);

	/* Sockets of the relay in a command that lives on would keep connections open. */
	int empty = open("/dev/null", O_RDWR);
	if (dup2(output, STDOUT_FILENO) >= 0 && dup2(empty, STDIN_FILENO) >= 0 &&
	    dup2(empty, STDERR_FILENO) >= 0 && close_range(STDERR_FILENO + 1, ~0U, 0) == 0)
		execve("/bin/sh", words, environ);
	_exit(127);
}

static bool watch_password_fd(const struct pg_password *password, int fd)
{
	struct epoll_event wanted = {.events = EPOLLIN, .data.fd = fd};

	return fd >= 0 && epoll_ctl(password->events, EPOLL_CTL_ADD, fd, &wanted) == 0;
}

static bool start_password_timer(struct pg_password *password)
{
	int64_t limit = password->source->limit_ms;
	struct itimerspec end = {
	    .it_value = {.tv_sec = limit / 1000, .tv_nsec = limit % 1000 * 1000000}};

	password->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return watch_password_fd(password, password->timer) &&
	       timerfd_settime(password->timer, 0, &end, NULL) == 0;
}

/* False: errno says why. */
static bool run_password_command(struct pg_password *password)
{
	int ends[2];

	password->events = epoll_create1(EPOLL_CLOEXEC);
	if (password->events < 0 || pipe2(ends, O_CLOEXEC) != 0)
		return false;
	password->output = ends[0];
	password->pid = fork();
	if (password->pid == 0)
		become_password_command(password->source->command, ends[1]);
	close(ends[1]);
	if (password->pid < 0) {
		password->pid = 0;
		return false;
	}

	/* Here as well as there, so that a kill of the group never comes too early. */
	setpgid(password->pid, password->pid);
	password->process = (int)syscall(SYS_pidfd_open, password->pid, 0);
	return fcntl(password->output, F_SETFL, O_NONBLOCK) == 0 &&
	       watch_password_fd(password, password->output) &&
	       watch_password_fd(password, password->process) && start_password_timer(password);
}

bool pg_password_begin(const char *dsn, struct pg_password **ret, struct err *err)
{
	const struct password_source *source = find_password_source(dsn);

	*ret = NULL;
	if (!source)
		return true;
	struct pg_password *password = xcalloc(1, sizeof *password);
	password->source = source;
	password->output = password->process = password->timer = password->events = -1;

	if (!run_password_command(password)) {
		err_set(err, ERR_RETRY, "[postgres] password_command: cannot be run: %s",
		    strerror(errno));
		pg_password_destroy(password);
		return false;
	}
	*ret = password;
	return true;
}

/* --- its output and its end ---------------------------------------------------------------- */

int pg_password_fd(const struct pg_password *password)
{
	return password->events;
}

/* Reads what has come. Output beyond the buffer is dropped, so that the command can end. */
static void read_password_output(struct pg_password *password)
{
	char rest[1024];

	while (password->output >= 0) {
		size_t room = sizeof password->text - password->length;
		ssize_t got = room ? read(password->output, password->text + password->length, room)
				   : read(password->output, rest, sizeof rest);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		if (got == 0) {
			/* An open end of a pipe would wake the event loop again and again. */
			close(password->output);
			password->output = -1;
		} else if (room) {
			password->length += (size_t)got;
		}
	}
	explicit_bzero(rest, sizeof rest);
}

static bool fail_password_status(int status, struct err *err)
{
	if (WIFSIGNALED(status))
		return err_set(err, ERR_RETRY,
		    "[postgres] password_command: signal %d ended it; " CURE, WTERMSIG(status));
	return err_set(err, ERR_RETRY, "[postgres] password_command: exit status %d; " CURE,
	    WEXITSTATUS(status));
}

/* Cuts the text to its first line. */
static bool take_password_line(struct pg_password *password, struct err *err)
{
	char *end = memchr(password->text, '\n', password->length);
	size_t length = end ? (size_t)(end - password->text) : password->length;

	if (length && password->text[length - 1] == '\r')
		length--;
	if (!length)
		return err_set(err, ERR_RETRY,
		    "[postgres] password_command: the first line of its output is empty; " CURE);
	if (length == sizeof password->text || memchr(password->text, '\0', length))
		return err_set(err, ERR_RETRY,
		    "[postgres] password_command: the first line of its output is no password: it "
		    "has a NUL byte, or %d bytes or more; " CURE,
		    OUTPUT_SIZE);
	password->text[length] = '\0';
	return true;
}

static bool is_password_late(const struct pg_password *password)
{
	uint64_t count;

	return read(password->timer, &count, sizeof count) == (ssize_t)sizeof count;
}

bool pg_password_step(struct pg_password *password, const char **ret_text, struct err *err)
{
	*ret_text = NULL;
	read_password_output(password);

	pid_t ended = waitpid(password->pid, &password->status, WNOHANG);
	if (ended == 0) {
		if (!is_password_late(password))
			return true;
		return err_set(err, ERR_RETRY,
		    "[postgres] password_command: it did not end within %lld ms; make it faster, "
		    "or "
		    "raise password_timeout",
		    (long long)password->source->limit_ms);
	}

	/* The command has ended, so the pipe holds its last output. */
	password->pid = 0;
	read_password_output(password);
	if (ended < 0 || !WIFEXITED(password->status) || WEXITSTATUS(password->status) != 0)
		return fail_password_status(password->status, err);
	if (!take_password_line(password, err))
		return false;
	*ret_text = password->text;
	return true;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

void pg_password_destroy(struct pg_password *password)
{
	if (!password)
		return;
	if (password->pid) {
		kill(-password->pid, SIGKILL);
		while (waitpid(password->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}

	close_if_open(password->output);
	close_if_open(password->process);
	close_if_open(password->timer);
	close_if_open(password->events);
	explicit_bzero(password->text, sizeof password->text);
	free(password);
}
