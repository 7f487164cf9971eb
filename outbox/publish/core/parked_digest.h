#pragma once
/*
 * The number that identifies a queue of outbox.parked; outbox.parked_digest (0007_parked.sql)
 * computes the same number from the same topic and key. A digester belongs to one thread.
 */
#include <stddef.h>
#include <stdint.h>

struct parked_digester;

struct parked_digester *parked_digester_create(void);
void parked_digester_destroy(struct parked_digester *digester);
int64_t parked_digest(struct parked_digester *digester, const char *topic, size_t topic_length,
    const char *key, size_t key_length);
