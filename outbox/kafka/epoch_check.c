#include "epoch_check.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "kafka_conf.h"
#include "text.h"

enum {
	PRODUCE_REQUEST = 0,
	BROKER = 1,
	ANSWER_MS = 20, /* so that both requests are under way before the first is answered */
	PATIENCE_MS = 10000,
};

/* A way into a new epoch, by the answers to the first two requests. */
struct situation {
	const char *topic;
	int answers;
	rd_kafka_resp_err_t first, second;
};
static const struct situation situations[] = {
    /* "ERRSEQ": a request fails, and the one behind it is out of order */
    {"out-of-order", 2, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
	RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER},
    /* "UNKPID": the broker has forgotten the producer */
    {"unknown-producer", 1, RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, RD_KAFKA_RESP_ERR_NO_ERROR},
};

static rd_kafka_t *make_mock_producer(rd_kafka_mock_cluster_t *cluster, struct err *err)
{
	struct kafka_property servers = {.name = "bootstrap.servers",
	    .value = (char *)rd_kafka_mock_cluster_bootstraps(cluster),
	    .origin = "epoch check"};
	const struct kafka_settings kafka = {
	    .name = "epoch check", .properties = &servers, .property_count = 1};
	rd_kafka_conf_t *conf = kafka_conf_producer(&kafka, NULL, 1 << 20, 100, err);
	rd_kafka_t *handle;
	char text[256];

	if (!conf)
		return NULL;
	kafka_conf_mute(conf);
	/* each record is a request */
	if (!kafka_conf_set(conf, "batch.num.messages", "1", err)) {
		rd_kafka_conf_destroy(conf);
		return NULL;
	}
	handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
	if (!handle) {
		rd_kafka_conf_destroy(conf);
		err_set(err, ERR_FATAL, "no producer: %s", text);
	}
	return handle;
}

/* True: the producer became fatal. False: its records were written after all, or time is over. */
static bool becomes_fatal(rd_kafka_t *handle)
{
	rd_kafka_queue_t *queue = rd_kafka_queue_get_main(handle);
	int64_t until = clock_ms() + PATIENCE_MS;
	bool written = false;
	char text[256];

	while (!written && !rd_kafka_fatal_error(handle, text, sizeof text) && clock_ms() < until) {
		rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 100);

		if (event && rd_kafka_event_type(event) == RD_KAFKA_EVENT_DR)
			written = rd_kafka_event_message_next(event)->err == 0;
		rd_kafka_event_destroy(event);
	}
	rd_kafka_queue_destroy(queue);
	/* librdkafka has fatal errors of its own with the same code */
	return rd_kafka_fatal_error(handle, text, sizeof text) && strstr(text, kafka_conf_epoch);
}

static bool is_seen(
    rd_kafka_mock_cluster_t *cluster, const struct situation *situation, struct err *err)
{
	rd_kafka_t *handle = make_mock_producer(cluster, err);
	bool seen;

	if (!handle)
		return false;
	rd_kafka_mock_topic_create(cluster, situation->topic, 1, 1);
	/*
	 * Before the first record: the mock broker takes these answers for the next produce
	 * requests.
	 */
	rd_kafka_mock_broker_push_request_error_rtts(cluster, BROKER, PRODUCE_REQUEST,
	    (size_t)situation->answers, situation->first, ANSWER_MS, situation->second, ANSWER_MS);
	for (int i = 0; i < situation->answers; i++)
		rd_kafka_producev(handle, RD_KAFKA_V_TOPIC(situation->topic),
		    RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_VALUE("x", 1), RD_KAFKA_V_END);

	seen = becomes_fatal(handle);
	rd_kafka_purge(handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
	rd_kafka_destroy(handle);
	return seen ||
	       err_set(err, ERR_CONFIG,
		   "librdkafka %s begins a new epoch of its idempotent producer (%s) without the "
		   "debug line that the relay stops it by, and could publish records twice",
		   rd_kafka_version_str(), situation->topic);
}

struct mock {
	rd_kafka_t *carrier;
	rd_kafka_mock_cluster_t *cluster;
};

static void *destroy_mock(void *context)
{
	struct mock *mock = context;

	if (mock->cluster)
		rd_kafka_mock_cluster_destroy(mock->cluster);
	rd_kafka_destroy(mock->carrier);
	free(mock);
	return NULL;
}

/* The end of a mock cluster takes a second now and then: nobody waits for it. */
static void end_mock(struct mock *mock)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, destroy_mock, mock) == 0)
		pthread_detach(thread);
	else
		destroy_mock(mock);
}

static struct mock *begin_mock(struct err *err)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	struct mock *mock = xcalloc(1, sizeof *mock);
	char text[256];

	kafka_conf_mute(conf);
	mock->carrier = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
	if (!mock->carrier) {
		rd_kafka_conf_destroy(conf);
		free(mock);
		err_set(err, ERR_FATAL, "no mock broker: %s", text);
		return NULL;
	}
	mock->cluster = rd_kafka_mock_cluster_new(mock->carrier, 1);
	return mock;
}

static bool check_all(struct err *err)
{
	struct mock *mock = begin_mock(err);
	bool seen;

	if (!mock)
		return false;
	seen = mock->cluster || err_set(err, ERR_FATAL, "librdkafka makes no mock broker");
	for (size_t i = 0; i < sizeof situations / sizeof *situations && seen; i++)
		seen = is_seen(mock->cluster, &situations[i], err);
	end_mock(mock);
	return seen;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct err verdict;
static bool is_sure;

/*
 * The threads made here inherit the signal mask. The program blocks its signals later, and one that
 * such a thread received would kill the process.
 */
static void check_once(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	is_sure = check_all(&verdict);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool epoch_check(struct err *err)
{
	pthread_once(&once, check_once);
	return is_sure || err_set(err, verdict.kind, "%s", verdict.message);
}
