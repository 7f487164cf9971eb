#pragma once
/*
 * Does the librdkafka that runs tell of a new epoch of its idempotent producer before it begins
 * one? kafka_conf.c keeps that epoch from beginning, and knows of it only by the facility of a
 * debug line, which no interface of librdkafka promises.
 */
#include "errors.h"

/*
 * Brings two producers, configured like all others, into that situation, with librdkafka's own mock
 * broker, and sees whether they become fatal. It calls nothing outside the process. Once for each
 * process, some 0.1 s; any thread, the others wait. False: this librdkafka is not one that can be
 * relied on; err (ERR_CONFIG) says so.
 */
bool epoch_check(struct err *err) MUST_CHECK;
