#pragma once
/*
 * Explains why librdkafka cannot connect to a broker: a certificate, a password, a mechanism or a
 * protocol that does not fit. librdkafka says it in its own words, without the key of the
 * configuration. Pure functions.
 */
#include <stdbool.h>

struct connect_fault {
	char what[400];   /* "kafka-1:9094: the broker's certificate has expired" */
	const char *cure; /* static; tells the faults apart as well */
	bool sure;        /* false: a broker that just ends may cause the same text */
};

/*
 * text: a log line or an error of librdkafka about one broker. x509_error: the error that
 * OpenSSL found in that broker's certificate, or 0. False: the text is about something else.
 */
bool connect_fault_read(const char *text, int x509_error, struct connect_fault *ret_fault);

/* The cure of an error for which librdkafka makes no client at all; NULL: unknown. Static. */
const char *connect_fault_cure(const char *text);
