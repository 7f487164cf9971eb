#include "client_faults.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "clock.h"
#include "logging.h"
#include "text.h"

enum {
	TELL_MS = 60000,  /* between two lines about one fault */
	VALID_MS = 35000, /* librdkafka repeats the same text after half a minute only */
	MOST_TOLD = 32,
};

struct client_fault {
	const rd_kafka_t *handle;
	char cluster[64]; /* "": rd_kafka_new has not returned yet */
	int x509_error;
	struct connect_fault fault;
	int64_t at_ms; /* 0: no fault */
	UT_hash_handle hh;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct client_fault *clients;
static int opening; /* calls of rd_kafka_new */
static struct {
	char cluster[64];
	const char *cure;
	int64_t at_ms;
} told[MOST_TOLD];
static int told_next;

static struct client_fault *find_client_fault(const rd_kafka_t *handle)
{
	struct client_fault *client;

	HASH_FIND_PTR(clients, &handle, client);
	return client;
}

/*
 * A client that is ending may still log, and is no longer listed. While another one opens, nothing
 * tells the two apart, so that it is listed until client_faults_end.
 */
static struct client_fault *find_or_add_client(const rd_kafka_t *handle, bool add)
{
	struct client_fault *client = find_client_fault(handle);

	if (client || !add)
		return client;
	client = xcalloc(1, sizeof *client);
	client->handle = handle;
	HASH_ADD_PTR(clients, handle, client);
	return client;
}

static bool has_fault(const struct client_fault *client)
{
	return client && client->at_ms && clock_ms() - client->at_ms < VALID_MS;
}

/* These lines come after the one with the fault, and say less. */
static bool is_consequence(const char *text)
{
	return strstr(text, "brokers are down") || strstr(text, "Local: Authentication failure") ||
	       strstr(text, "Local: SSL error");
}

static bool was_told(const char *cluster, const char *cure, int64_t now)
{
	for (int i = 0; i < MOST_TOLD; i++)
		if (told[i].cure == cure && text_equal(told[i].cluster, cluster)) {
			if (now - told[i].at_ms < TELL_MS)
				return true;
			told[i].at_ms = now;
			return false;
		}

	text_copy(told[told_next].cluster, sizeof told[told_next].cluster, cluster);
	told[told_next].cure = cure;
	told[told_next].at_ms = now;
	told_next = (told_next + 1) % MOST_TOLD;
	return false;
}

static void tell_client_fault(const struct client_fault *client)
{
	if (!client->cluster[0] || !client->at_ms || !client->fault.sure ||
	    was_told(client->cluster, client->fault.cure, client->at_ms))
		return;
	log_warn("kafka_refused", {"kafka", LOG_TEXT(client->cluster)},
	    {"error", LOG_TEXT(client->fault.what)}, {"cure", LOG_TEXT(client->fault.cure)},
	    {"consequence", LOG_TEXT("the relay keeps trying")});
}

/* librdkafka's line about it follows. */
static void note_certificate(const rd_kafka_t *handle, int x509_error)
{
	pthread_mutex_lock(&mutex);
	struct client_fault *client = find_or_add_client(handle, opening > 0);
	if (client)
		client->x509_error = x509_error;
	pthread_mutex_unlock(&mutex);
}

/*
 * Changes no verdict of OpenSSL: librdkafka does not tell which one it was. Called from
 * librdkafka's threads.
 */
static int on_certificate(rd_kafka_t *handle, const char *broker, int32_t broker_id,
    int *x509_error, int depth, const char *der, size_t der_size, char *ret_text, size_t text_size,
    void *opaque)
{
	(void)broker, (void)broker_id, (void)depth, (void)der, (void)der_size, (void)opaque;
	if (*x509_error == 0)
		return 1;
	note_certificate(handle, *x509_error);
	/* librdkafka logs this text; the fault has a line of its own. */
	snprintf(ret_text, text_size, "certificate verify failed");
	return 0;
}

static bool verifies_certificates(const rd_kafka_conf_t *conf)
{
	char text[8] = "";
	size_t size = sizeof text;

	return rd_kafka_conf_get(conf, "enable.ssl.certificate.verification", text, &size) ==
		   RD_KAFKA_CONF_OK &&
	       text_equal(text, "true");
}

void client_faults_begin(rd_kafka_conf_t *conf)
{
	/* With a callback librdkafka verifies, whatever the configuration says. */
	if (verifies_certificates(conf))
		(void)rd_kafka_conf_set_ssl_cert_verify_cb(conf, on_certificate);
	pthread_mutex_lock(&mutex);
	opening++;
	pthread_mutex_unlock(&mutex);
}

static void remove_client_fault(struct client_fault *client)
{
	HASH_DEL(clients, client);
	free(client);
}

/* Those of rd_kafka_new that failed, and of clients that were ending meanwhile. */
static void remove_unopened_clients(void)
{
	struct client_fault *client, *next;

	HASH_ITER(hh, clients, client, next)
	{
		if (!client->cluster[0])
			remove_client_fault(client);
	}
}

void client_faults_end(const rd_kafka_t *handle, const char *cluster)
{
	pthread_mutex_lock(&mutex);
	opening--;
	if (handle) {
		struct client_fault *client = find_or_add_client(handle, true);
		text_copy(client->cluster, sizeof client->cluster, cluster);
		tell_client_fault(client);
	}
	if (opening == 0)
		remove_unopened_clients();
	pthread_mutex_unlock(&mutex);
}

void client_faults_forget(const rd_kafka_t *handle)
{
	pthread_mutex_lock(&mutex);
	struct client_fault *client = find_client_fault(handle);
	if (client)
		remove_client_fault(client);
	pthread_mutex_unlock(&mutex);
}

bool client_faults_note(const rd_kafka_t *handle, const char *text)
{
	struct connect_fault fault;

	pthread_mutex_lock(&mutex);
	struct client_fault *client = find_or_add_client(handle, opening > 0);
	bool known = connect_fault_read(text, client ? client->x509_error : 0, &fault);
	if (known && client) {
		client->fault = fault;
		client->at_ms = clock_ms();
		tell_client_fault(client);
	}
	bool covered =
	    known ? fault.sure : has_fault(client) && client->fault.sure && is_consequence(text);
	pthread_mutex_unlock(&mutex);
	return covered;
}

bool client_faults_get(const rd_kafka_t *handle, struct connect_fault *ret_fault)
{
	pthread_mutex_lock(&mutex);
	const struct client_fault *client = find_client_fault(handle);
	bool found = has_fault(client);
	if (found)
		*ret_fault = client->fault;
	pthread_mutex_unlock(&mutex);
	return found;
}
