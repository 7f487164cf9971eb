/*
 * A client is a session, from take_session to free_session: two bufferevents of libevent, and each
 * writes the bytes that the other has read. Begin at run_tls_front.
 */
#include "tls_front.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>
#include "cleanup.h"
#include "clock.h"
#include "logging.h"
#include "text.h"

enum {
	MOST_WAITING = 64 << 10, /* bytes that one side has not taken yet: the other side waits */
	END_S = 2,               /* for clients to leave at the end of the process */
	PAUSE_S = 1,             /* between two looks at a gate of which nothing is read */
	LOOK_MS = 1000,          /* between two looks at the files */
};

/* Tells whether a file is another one, or has other content. */
struct file_mark {
	dev_t device;
	ino_t inode;
	off_t size;
	struct timespec changed;
};

struct tls_front {
	struct tls_front_settings settings; /* its texts are the front's own */
	atomic_int count;                   /* clients whose descriptor is open */
	int newcomers[2]; /* a pipe of struct newcomer; closed for writing: the thread ends */
	pthread_t thread;
	bool runs;

	/* used by the thread alone, once it runs */
	struct event_base *base;
	struct event *newcomers_event;
	SSL_CTX *context;
	struct file_mark certificate_mark, key_mark;
	int64_t looked_at;
	bool files_failed; /* told in the log */
	struct session *sessions;
	struct session *leaving; /* those with a leave_over: they have settings.leave_ms */
	int leaving_count;
	bool ends;
};

struct newcomer {
	int secure_fd, plain_fd;
};

struct session {
	struct tls_front *front;
	struct bufferevent *secure, *plain; /* plain NULL: the gate has closed its side */
	struct event *pause;                /* looks at the gate while nothing is read from it */
	struct event *leave_over; /* NULL: the gate has not closed its side, as far as we know */
	struct session *prev, *next;
};

/* --- certificates --------------------------------------------------------------------------- */

/* The newest error of OpenSSL, without its codes. */
static const char *tls_reason(void)
{
	unsigned long error = ERR_peek_last_error();
	const char *reason = ERR_reason_error_string(error);

	/*
	 * OpenSSL compares a key with the certificate when it reads the key; one of another kind
	 * only on request.
	 */
	if ((ERR_GET_LIB(error) == ERR_LIB_X509 &&
		ERR_GET_REASON(error) == X509_R_KEY_VALUES_MISMATCH) ||
	    (ERR_GET_LIB(error) == ERR_LIB_SSL &&
		ERR_GET_REASON(error) == SSL_R_NO_CERTIFICATE_ASSIGNED))
		return "it is not the key of tls_certificate";
	return reason ? reason : "it is no such file in PEM";
}

/* Without it OpenSSL would ask for the password on the terminal, also in a thread of the relay. */
static int refuse_tls_password(char *password, int size, int writes, void *context)
{
	bool *is_wanted = context;

	(void)password;
	(void)size;
	(void)writes;
	if (is_wanted)
		*is_wanted = true;
	return -1;
}

static bool refuse_tls_file(const struct tls_front_settings *settings, const char *key,
    const char *path, const char *why, struct err *err)
{
	return err_set(err, ERR_CONFIG, "[%s] %s = %.300s: %s", settings->section, key, path, why);
}

static bool load_tls_key(
    SSL_CTX *context, const struct tls_front_settings *settings, struct err *err)
{
	bool wants_password = false, good;

	SSL_CTX_set_default_passwd_cb_userdata(context, &wants_password);
	good = SSL_CTX_use_PrivateKey_file(context, settings->key, SSL_FILETYPE_PEM) == 1 &&
	       SSL_CTX_check_private_key(context) == 1;
	SSL_CTX_set_default_passwd_cb_userdata(context, NULL);
	return good || refuse_tls_file(settings, "tls_key", settings->key,
			   wants_password ? "a password protects it; write it without one, with: "
					    "openssl pkey"
					  : tls_reason(),
			   err);
}

static bool load_tls_files(
    SSL_CTX *context, const struct tls_front_settings *settings, struct err *err)
{
	ERR_clear_error();
	if (access(settings->certificate, R_OK) != 0)
		return refuse_tls_file(
		    settings, "tls_certificate", settings->certificate, strerror(errno), err);
	if (access(settings->key, R_OK) != 0)
		return refuse_tls_file(settings, "tls_key", settings->key, strerror(errno), err);
	if (SSL_CTX_use_certificate_chain_file(context, settings->certificate) != 1)
		return refuse_tls_file(
		    settings, "tls_certificate", settings->certificate, tls_reason(), err);
	return load_tls_key(context, settings, err);
}

static SSL_CTX *new_tls_context(const struct tls_front_settings *settings, struct err *err)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());

	if (!context) {
		err_set(err, ERR_FATAL, "[%s] no TLS: %s", settings->section, tls_reason());
		return NULL;
	}
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_default_passwd_cb(context, refuse_tls_password);
	if (load_tls_files(context, settings, err))
		return context;
	SSL_CTX_free(context);
	return NULL;
}

bool tls_front_check(const struct tls_front_settings *settings, struct err *err)
{
	SSL_CTX *context = new_tls_context(settings, err);

	SSL_CTX_free(context);
	return context;
}

static struct file_mark tls_file_mark(const char *path)
{
	struct stat state;

	if (stat(path, &state) != 0)
		return (struct file_mark){0};
	return (struct file_mark){state.st_dev, state.st_ino, state.st_size, state.st_mtim};
}

/* Notes the mark; false: the file is another one than before. */
static bool is_same_file(struct file_mark *mark, const char *path)
{
	struct file_mark now = tls_file_mark(path);
	bool same = now.device == mark->device && now.inode == mark->inode &&
		    now.size == mark->size && now.changed.tv_sec == mark->changed.tv_sec &&
		    now.changed.tv_nsec == mark->changed.tv_nsec;

	*mark = now;
	return same;
}

static bool are_same_files(struct tls_front *front)
{
	bool same = is_same_file(&front->certificate_mark, front->settings.certificate);

	return is_same_file(&front->key_mark, front->settings.key) && same;
}

/* Files that failed are tried again with each look: the second of them may come at any time. */
static void look_at_tls_files(struct tls_front *front)
{
	int64_t now = clock_ms();
	SSL_CTX *context;
	struct err err;

	if (now < front->looked_at + LOOK_MS)
		return;
	front->looked_at = now;
	if (are_same_files(front) && !front->files_failed)
		return;
	context = new_tls_context(&front->settings, &err);
	if (context) {
		SSL_CTX_free(front->context);
		front->context = context;
		log_info("certificate_changed", {"section", LOG_TEXT(front->settings.section)});
	} else if (!front->files_failed) {
		log_warn("certificate_refused", {"section", LOG_TEXT(front->settings.section)},
		    {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("clients get the certificate that was read before")});
	}
	front->files_failed = !context;
}

/* --- sessions ------------------------------------------------------------------------------- */

static void end_if_empty(struct tls_front *front)
{
	if (front->ends && !front->sessions && !front->leaving)
		event_base_loopexit(front->base, NULL);
}

static void free_session(struct session *session)
{
	struct tls_front *front = session->front;

	if (session->leave_over) {
		DL_DELETE(front->leaving, session);
		front->leaving_count--;
		event_free(session->leave_over);
	} else {
		DL_DELETE(front->sessions, session);
	}
	if (session->pause)
		event_free(session->pause);
	bufferevent_free(session->secure);
	if (session->plain)
		bufferevent_free(session->plain);
	free(session);

	atomic_fetch_sub(&front->count, 1);
	end_if_empty(front);
}

/* Writes to one side what the other side has sent. Stops reading while too many bytes wait. */
static void pass_on(struct bufferevent *from, struct bufferevent *to)
{
	bufferevent_write_buffer(to, bufferevent_get_input(from));
	if (evbuffer_get_length(bufferevent_get_output(to)) >= MOST_WAITING)
		bufferevent_disable(from, EV_READ);
}

/* The answer went out: says so to the client, which then closes. */
static void end_secure(struct session *session)
{
	SSL *ssl = bufferevent_openssl_get_ssl(session->secure);

	/* A second call would read what the client still sends, and fail at it. */
	if (SSL_get_shutdown(ssl) & SSL_SENT_SHUTDOWN)
		return;
	(void)SSL_shutdown(ssl);
	shutdown(bufferevent_getfd(session->secure), SHUT_WR);
}

static void on_secure_read(struct bufferevent *secure, void *context)
{
	struct session *session = context;
	struct evbuffer *input = bufferevent_get_input(secure);

	if (session->plain)
		pass_on(secure, session->plain);
	else /* a reset instead could cost the client its answer */
		evbuffer_drain(input, evbuffer_get_length(input));
}

static void on_plain_read(struct bufferevent *plain, void *context)
{
	static const struct timeval pause = {.tv_sec = PAUSE_S};
	struct session *session = context;

	pass_on(plain, session->secure);
	if (!(bufferevent_get_enabled(plain) & EV_READ) && event_add(session->pause, &pause) != 0)
		free_session(session);
}

/* Half of the bytes, or all, have gone out. */
static void on_secure_written(struct bufferevent *secure, void *context)
{
	struct session *session = context;

	if (session->plain) {
		bufferevent_enable(session->plain, EV_READ);
		event_del(session->pause);
	} else if (evbuffer_get_length(bufferevent_get_output(secure)) == 0) {
		end_secure(session);
	}
}

static void on_plain_written(struct bufferevent *plain, void *context)
{
	struct session *session = context;

	(void)plain;
	bufferevent_enable(session->secure, EV_READ);
}

static void on_secure_event(struct bufferevent *secure, short what, void *context)
{
	(void)secure;
	if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
		free_session(context);
}

/* Whatever the client still sends or reads: its place is another's. */
static void on_leave_over(evutil_socket_t fd, short what, void *context)
{
	(void)fd;
	(void)what;
	free_session(context);
}

/* From now on the client has settings.leave_ms. False: the session is gone. */
static bool begin_session_leave(struct session *session)
{
	struct tls_front *front = session->front;
	const int64_t ms = front->settings.leave_ms;
	const struct timeval leave = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	struct event *leave_over;

	if (session->leave_over)
		return true;
	leave_over = evtimer_new(front->base, on_leave_over, session);
	if (!leave_over || evtimer_add(leave_over, &leave) != 0) {
		if (leave_over)
			event_free(leave_over);
		free_session(session);
		return false;
	}

	/* The gate no longer counts this client, so that their number is limited here. */
	DL_DELETE(front->sessions, session);
	session->leave_over = leave_over;
	DL_APPEND(front->leaving, session);
	if (++front->leaving_count > front->settings.leaving)
		free_session(front->leaving);
	return true;
}

/*
 * Nothing is read from the gate because the client does not take its answer, so no event tells that
 * the gate has closed its side. EV_CLOSED would not: libevent drops it for a socket with an error,
 * which ours has if the gate closed its side before it had read all.
 */
static void on_pause(evutil_socket_t fd, short what, void *context)
{
	struct session *session = context;
	struct pollfd plain = {.fd = bufferevent_getfd(session->plain), .events = POLLRDHUP};

	(void)fd;
	(void)what;
	if (poll(&plain, 1, 0) > 0)
		(void)begin_session_leave(session);
}

/* All that the gate sent was read: it goes out, and the client has time to close. */
static void on_plain_event(struct bufferevent *plain, short what, void *context)
{
	struct session *session = context;

	if (!(what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)))
		return;
	if (SSL_in_init(bufferevent_openssl_get_ssl(session->secure))) {
		free_session(session);
		return;
	}
	/* It looks at the descriptor that is closed here. */
	event_del(session->pause);
	session->plain = NULL;
	bufferevent_free(plain);
	if (!begin_session_leave(session))
		return;

	bufferevent_setwatermark(session->secure, EV_WRITE, 0, 0);
	bufferevent_enable(session->secure, EV_READ);
	if (evbuffer_get_length(bufferevent_get_output(session->secure)) == 0)
		end_secure(session);
}

static void close_newcomer(struct tls_front *front, const struct newcomer *newcomer)
{
	close(newcomer->secure_fd);
	close(newcomer->plain_fd);
	atomic_fetch_sub(&front->count, 1);
}

/* libevent frees the SSL also when it fails. */
static struct bufferevent *new_secure(struct tls_front *front, int fd)
{
	SSL *ssl = SSL_new(front->context);

	return ssl ? bufferevent_openssl_socket_new(
			 front->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
		   : NULL;
}

static void take_session(struct tls_front *front, const struct newcomer *newcomer)
{
	struct session *session;
	struct bufferevent *plain, *secure = new_secure(front, newcomer->secure_fd);

	if (!secure) {
		close_newcomer(front, newcomer);
		return;
	}
	plain = bufferevent_socket_new(front->base, newcomer->plain_fd, BEV_OPT_CLOSE_ON_FREE);
	if (!plain) {
		bufferevent_free(secure);
		close(newcomer->plain_fd);
		atomic_fetch_sub(&front->count, 1);
		return;
	}

	session = xcalloc(1, sizeof *session);
	*session = (struct session){.front = front, .secure = secure, .plain = plain};
	DL_APPEND(front->sessions, session);
	bufferevent_openssl_set_allow_dirty_shutdown(secure, 1);
	bufferevent_setcb(secure, on_secure_read, on_secure_written, on_secure_event, session);
	bufferevent_setcb(plain, on_plain_read, on_plain_written, on_plain_event, session);
	bufferevent_setwatermark(secure, EV_WRITE, MOST_WAITING / 2, 0);
	bufferevent_setwatermark(plain, EV_WRITE, MOST_WAITING / 2, 0);
	bufferevent_enable(secure, EV_READ | EV_WRITE);
	bufferevent_enable(plain, EV_READ | EV_WRITE);

	session->pause = event_new(front->base, -1, EV_PERSIST, on_pause, session);
	if (!session->pause)
		free_session(session);
}

/* --- the thread ----------------------------------------------------------------------------- */

static void on_newcomers(evutil_socket_t fd, short what, void *context)
{
	static const struct timeval end = {.tv_sec = END_S};
	struct tls_front *front = context;
	struct newcomer newcomer;
	ssize_t length;

	(void)what;
	look_at_tls_files(front);
	/* A write of so few bytes to a pipe is whole. */
	while ((length = read(fd, &newcomer, sizeof newcomer)) == sizeof newcomer)
		take_session(front, &newcomer);
	if (length != 0)
		return;
	/* The end: the gate has closed its sides, and clients that read get what is left. */
	event_del(front->newcomers_event);
	event_base_loopexit(front->base, &end);
	front->ends = true;
	end_if_empty(front);
}

static void *run_tls_front(void *context)
{
	struct tls_front *front = context;

	pthread_setname_np(pthread_self(), "tls-front");
	event_base_dispatch(front->base);
	return NULL;
}

/* --- from other threads --------------------------------------------------------------------- */

int tls_front_add(struct tls_front *front, int fd)
{
	const int on = 1;
	int pair[2];
	struct newcomer newcomer;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
		close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	newcomer = (struct newcomer){.secure_fd = fd, .plain_fd = pair[0]};
	atomic_fetch_add(&front->count, 1);
	if (write(front->newcomers[1], &newcomer, sizeof newcomer) == sizeof newcomer)
		return pair[1];
	close_newcomer(front, &newcomer);
	close(pair[1]);
	return -1;
}

int tls_front_count(const struct tls_front *front)
{
	return atomic_load(&front->count);
}

static bool open_event_base(struct tls_front *front)
{
	struct event_config *config = event_config_new();

	if (!config)
		return false;
	/* Only its own thread touches the base. */
	event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
	front->base = event_base_new_with_config(config);
	event_config_free(config);
	if (!front->base || pipe2(front->newcomers, O_NONBLOCK | O_CLOEXEC) != 0)
		return false;
	front->newcomers_event =
	    event_new(front->base, front->newcomers[0], EV_READ | EV_PERSIST, on_newcomers, front);
	return front->newcomers_event && event_add(front->newcomers_event, NULL) == 0;
}

/* The thread blocks all signals, as those of the gate do. */
static bool start_tls_thread(struct tls_front *front)
{
	sigset_t every, before;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	front->runs = pthread_create(&front->thread, NULL, run_tls_front, front) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return front->runs;
}

struct tls_front *tls_front_start(const struct tls_front_settings *settings, struct err *err)
{
	struct tls_front *front = xcalloc(1, sizeof *front);

	front->settings = *settings;
	front->settings.section = xstrdup(settings->section);
	front->settings.certificate = xstrdup(settings->certificate);
	front->settings.key = xstrdup(settings->key);
	front->newcomers[0] = front->newcomers[1] = -1;
	(void)are_same_files(front);
	front->context = new_tls_context(&front->settings, err);
	if (front->context && open_event_base(front) && start_tls_thread(front))
		return front;
	if (front->context)
		err_set(err, ERR_FATAL, "[%s] no thread for TLS: %s", settings->section,
		    strerror(errno));
	tls_front_stop(front);
	return NULL;
}

void tls_front_stop(struct tls_front *front)
{
	if (!front)
		return;
	if (front->newcomers[1] >= 0)
		close(front->newcomers[1]);
	if (front->runs)
		pthread_join(front->thread, NULL);
	while (front->sessions)
		free_session(front->sessions);
	while (front->leaving)
		free_session(front->leaving);

	if (front->newcomers_event)
		event_free(front->newcomers_event);
	if (front->newcomers[0] >= 0)
		close(front->newcomers[0]);
	if (front->base)
		event_base_free(front->base);
	SSL_CTX_free(front->context);
	free((char *)front->settings.section);
	free((char *)front->settings.certificate);
	free((char *)front->settings.key);
	free(front);
}
