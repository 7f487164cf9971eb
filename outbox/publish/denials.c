#include "denials.h"

#include <stdlib.h>
#include <uthash.h>

#include "backoff.h"
#include "clock.h"
#include "text.h"

enum { FIRST_MS = 1000, CAP_MS = 60000 };

struct denial {
	char *topic;
	struct backoff backoff;
	int64_t until;
	UT_hash_handle hh;
};

static struct denial *find(const struct denials *denials, const char *topic)
{
	struct denial *denial;
	HASH_FIND_STR(denials->topics, topic, denial);
	return denial;
}

void denials_add(struct denials *denials, const char *topic, int64_t now)
{
	struct denial *denial = find(denials, topic);
	if (!denial) {
		denial = xcalloc(1, sizeof *denial);
		denial->topic = xstrdup(topic);
		denial->backoff = (struct backoff){.first_ms = FIRST_MS,
		    .cap_ms = CAP_MS,
		    .jitter = 0.2,
		    .seed = (uint64_t)clock_random()};
		HASH_ADD_KEYPTR(hh, denials->topics, denial->topic, strlen(topic), denial);
	}
	if (now >= denial->until)
		denial->until = now + backoff_next_ms(&denial->backoff);
}

bool denials_hold(const struct denials *denials, const char *topic, int64_t now)
{
	const struct denial *denial = find(denials, topic);
	return denial && now < denial->until;
}

static void drop(struct denials *denials, struct denial *denial)
{
	HASH_DEL(denials->topics, denial);
	free(denial->topic);
	free(denial);
}

void denials_remove(struct denials *denials, const char *topic)
{
	struct denial *denial = denials->topics ? find(denials, topic) : NULL;
	if (denial)
		drop(denials, denial);
}

void denials_finish(struct denials *denials)
{
	struct denial *denial, *next;
	HASH_ITER(hh, denials->topics, denial, next)
	drop(denials, denial);
}
