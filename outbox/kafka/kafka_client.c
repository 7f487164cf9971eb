#include "kafka_client.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "client_faults.h"
#include "client_files.h"
#include "connect_fault.h"
#include "kafka_conf.h"
#include "memory.h"
#include "text.h"
#include "clock.h"

enum { TIMER_SLACK_NS = 1100000 };

/*
 * The main thread of a client wakes for its timers, one of them each second. It waits whole
 * milliseconds, rounded down, and then spins until the timer is due. That takes half a millisecond
 * of CPU each time: most of the cost of an idle client. With a timer slack the kernel wakes it
 * after the timer is due. A thread inherits the slack of the thread that creates it. (An
 * interceptor could set it in that thread alone, but librdkafka frees interceptors twice when
 * rd_kafka_new fails.)
 */
static rd_kafka_t *new_kafka_client(
    rd_kafka_type_t type, rd_kafka_conf_t *conf, char *text, size_t size)
{
	int slack_ns = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	rd_kafka_t *handle;

	(void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
	handle = rd_kafka_new(type, conf, text, size);
	(void)prctl(PR_SET_TIMERSLACK, slack_ns, 0, 0, 0);
	return handle;
}

rd_kafka_t *kafka_client_open(rd_kafka_type_t type, rd_kafka_conf_t *conf,
    const struct kafka_settings *kafka, struct err *err)
{
	struct client_files_use use;
	rd_kafka_t *handle;
	char text[512];

	if (!conf)
		return NULL;

	client_files_begin(conf, kafka, &use);
	client_faults_begin(conf);
	handle = new_kafka_client(type, conf, text, sizeof text);
	client_faults_end(handle, kafka->name);
	client_files_end(&use, handle);
	if (handle)
		return handle;

	rd_kafka_conf_destroy(conf);
	const char *cure = connect_fault_cure(text);
	err_set(err, ERR_CONFIG, "[kafka \"%s\"]: %s%s%s", kafka->name, text, cure ? "; " : "",
	    cure ? cure : "");
	return NULL;
}

bool kafka_client_failed(struct err *err, rd_kafka_resp_err_t code, const char *what)
{
	return err_set(err, kafka_error_kind(code), "%s: %s (%s)", what, rd_kafka_err2str(code),
	    rd_kafka_err2name(code));
}

/* Codes of requests that never reached a broker. */
static bool is_unconnected(rd_kafka_resp_err_t code)
{
	return code == RD_KAFKA_RESP_ERR__TRANSPORT || code == RD_KAFKA_RESP_ERR__SSL ||
	       code == RD_KAFKA_RESP_ERR__AUTHENTICATION ||
	       code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ||
	       code == RD_KAFKA_RESP_ERR__TIMED_OUT || code == RD_KAFKA_RESP_ERR__WAIT_COORD;
}

bool kafka_client_unanswered(
    struct err *err, const rd_kafka_t *handle, rd_kafka_resp_err_t code, const char *what)
{
	struct connect_fault fault;

	if (!is_unconnected(code) || !client_faults_get(handle, &fault))
		return kafka_client_failed(err, code, what);
	return err_set(err, ERR_RETRY, "%s; %s", fault.what, fault.cure);
}

bool kafka_client_explain(const rd_kafka_t *handle, rd_kafka_resp_err_t code, const char *text,
    char *ret_text, size_t size)
{
	bool down = code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
	struct connect_fault fault;

	/* The one that was noted says more about a certificate. */
	if ((down && client_faults_get(handle, &fault)) ||
	    (!down && connect_fault_read(text, 0, &fault))) {
		client_faults_get(handle, &fault);
		snprintf(ret_text, size, "%s; %s", fault.what, fault.cure);
		return fault.sure;
	}
	snprintf(ret_text, size, "%s (%s)", text, rd_kafka_err2name(code));
	return false;
}

bool kafka_client_is_missing(rd_kafka_resp_err_t code)
{
	return code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
	       code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
}

rd_kafka_resp_err_t kafka_client_topic(rd_kafka_t *handle, const char *name, int timeout_ms,
    const struct rd_kafka_metadata **ret_metadata)
{
	rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
	rd_kafka_resp_err_t code;

	*ret_metadata = NULL;
	if (!topic)
		return rd_kafka_last_error();
	code = rd_kafka_metadata(handle, 0, topic, ret_metadata, timeout_ms);
	rd_kafka_topic_destroy(topic);
	if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
		return code;
	if ((*ret_metadata)->topic_cnt != 1)
		return RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
	return (*ret_metadata)->topics[0].err;
}

rd_kafka_resp_err_t kafka_client_topics(rd_kafka_t *handle, const char *const *names, int count,
    int timeout_ms, const struct rd_kafka_metadata **ret_metadata)
{
	rd_kafka_topic_t **topics = xcalloc((size_t)count, sizeof *topics);
	rd_kafka_resp_err_t code;

	*ret_metadata = NULL;
	for (int i = 0; i < count; i++)
		topics[i] = rd_kafka_topic_new(handle, names[i], NULL);
	/* one: that topic alone; many: all that the client has heard of, these among them */
	code = count == 1 && !topics[0]
		   ? rd_kafka_last_error()
		   : rd_kafka_metadata(
			 handle, 0, count == 1 ? topics[0] : NULL, ret_metadata, timeout_ms);
	for (int i = 0; i < count; i++)
		if (topics[i])
			rd_kafka_topic_destroy(topics[i]);
	free(topics);
	return code;
}

/* Shared by the closing thread and the one that waits; the last of the two frees it. */
struct closing {
	rd_kafka_t *handle;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool done, abandoned;
};

static void closing_free(struct closing *closing)
{
	pthread_cond_destroy(&closing->changed);
	pthread_mutex_destroy(&closing->mutex);
	free(closing);
}

static void *close_handle(void *argument)
{
	struct closing *closing = argument;
	bool abandoned;

	rd_kafka_destroy(closing->handle);
	/* a client of many topics leaves free pages in the arenas of its threads */
	memory_give_back();
	pthread_mutex_lock(&closing->mutex);
	closing->done = true;
	abandoned = closing->abandoned;
	pthread_cond_signal(&closing->changed);
	pthread_mutex_unlock(&closing->mutex);
	if (abandoned)
		closing_free(closing);
	return NULL;
}

static struct timespec after_ms(int wait_ms)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += wait_ms / 1000;
	at.tv_nsec += wait_ms % 1000 * 1000000L;
	if (at.tv_nsec >= 1000000000L) {
		at.tv_sec++;
		at.tv_nsec -= 1000000000L;
	}
	return at;
}

static struct closing *closing_create(rd_kafka_t *handle)
{
	struct closing *closing = xcalloc(1, sizeof *closing);

	closing->handle = handle;
	pthread_mutex_init(&closing->mutex, NULL);
	clock_cond_init(&closing->changed);
	return closing;
}

bool kafka_client_close(rd_kafka_t *handle, int wait_ms)
{
	struct timespec until = after_ms(wait_ms);
	struct closing *closing;
	pthread_t thread;
	bool done;

	if (!handle)
		return true;
	client_files_forget(handle);
	client_faults_forget(handle);
	closing = closing_create(handle);
	if (pthread_create(&thread, NULL, close_handle, closing) != 0) {
		/*
		 * Without a thread it blocks, beyond wait_ms too: a client that nobody ends would
		 * be a leak.
		 */
		closing_free(closing);
		rd_kafka_destroy(handle);
		return true;
	}
	pthread_mutex_lock(&closing->mutex);
	while (!closing->done)
		if (pthread_cond_timedwait(&closing->changed, &closing->mutex, &until) == ETIMEDOUT)
			break;
	done = closing->done;
	/* Decided under the lock: exactly one of the two threads frees `closing`. */
	closing->abandoned = !done;
	pthread_mutex_unlock(&closing->mutex);
	if (!done) {
		pthread_detach(thread);
		return false;
	}
	pthread_join(thread, NULL);
	closing_free(closing);
	return true;
}
