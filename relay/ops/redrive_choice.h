#pragma once
/* The dead letters that a redrive sends back, as texts: members of a filter, places, and ends. */
#include "redrive.h"

/* All zero, then redrive_choice_init. */
struct redrive_choice {
	struct redrive_filter filter; /* its texts are those below */
	char *texts[4];
	int64_t *ends; /* by partition, as in redrive_limits; NULL: none */
	int end_count;
};

void redrive_choice_init(struct redrive_choice *choice);
void redrive_choice_finish(struct redrive_choice *choice);

/* A member of the filter: id, key, topic, reason, from or to. ERR_REJECT: there is none of this
 * name, or the time is none. */
bool redrive_choice_add(
    struct redrive_choice *choice, const char *name, const char *value, struct err *err) MUST_CHECK;
/* "0:18,3:4": offsets at which partitions end; parts that are wrong are left out. */
void redrive_choice_ends(struct redrive_choice *choice, const char *text);

/* "PARTITION:OFFSET". False: it is none. */
bool redrive_place_parse(const char *text, struct redrive_place *ret_place) MUST_CHECK;
