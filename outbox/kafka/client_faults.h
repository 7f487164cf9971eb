#pragma once
/*
 * Why the open clients of librdkafka cannot connect to a broker (connect_fault.h). The log has one
 * line for each cluster and kind of fault, and again after a minute, however many clients and
 * brokers have it; librdkafka's own lines about it are left out. Private to this folder. Any thread
 * may call, librdkafka's among them.
 */
#include <librdkafka/rdkafka.h>
#include "connect_fault.h"

/* Around rd_kafka_new, whose client may report a fault before it returns. handle NULL: it failed.
 */
void client_faults_begin(rd_kafka_conf_t *conf);
void client_faults_end(const rd_kafka_t *handle, const char *cluster);
void client_faults_forget(const rd_kafka_t *handle);

/* A line of librdkafka's log. True: it needs no line of its own. */
bool client_faults_note(const rd_kafka_t *handle, const char *text);

/* The fault of the last half minute. */
bool client_faults_get(const rd_kafka_t *handle, struct connect_fault *ret_fault);
