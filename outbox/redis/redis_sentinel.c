#include "redis_sentinel.h"

#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "redis.h"
#include "text.h"

struct master {
	char *host; /* NULL: the Sentinel does not know the name */
	int port;
};

static void see_master(void *context, size_t number, const struct redis_answer *answer)
{
	struct master *master = context;
	int64_t port;

	(void)number;
	if (answer->kind != REDIS_LIST || answer->count != 2)
		return;
	const struct redis_answer host = redis_answer_item(answer, 0);
	const struct redis_answer digits = redis_answer_item(answer, 1);
	if (host.kind != REDIS_TEXT || digits.kind != REDIS_TEXT ||
	    !text_to_int64(digits.text, 1, 65535, &port))
		return;

	free(master->host);
	*master = (struct master){xstrdup(host.text), (int)port};
}

static bool ask_sentinel(struct redis *redis, const struct redis_address *address, int64_t end,
    struct master *ret_master, struct err *err)
{
	redis_sayf(redis, "SENTINEL get-master-addr-by-name %s", address->master);
	if (redis_hear(redis, (int)(end - clock_ms()), see_master, ret_master, err))
		return ret_master->host ||
		       err_set(err, ERR_RETRY,
			   "%s: this Sentinel knows no master %s: correct the name in url",
			   redis_place_of(redis), address->master);

	const char *refusal = redis_refusal(redis);
	if (refusal && text_starts(refusal, "ERR unknown command"))
		err_set(err, ERR_CONFIG,
		    "%s: this server is no Sentinel: write the addresses of Sentinels behind "
		    "redis+sentinel://, "
		    "or redis:// before this one",
		    redis_place_of(redis));
	return false;
}

/* An error of configuration counts only if no later Sentinel knows better. */
static void keep_worse(struct err *kept, const struct err *err, bool first)
{
	if (first || err->kind != ERR_RETRY)
		*kept = *err;
}

bool redis_sentinel_ask(
    struct redis_sentinel *sentinel, int64_t end, char **ret_host, int *ret_port, struct err *err)
{
	const struct redis_address *address = sentinel->address;
	int count = address->seed_count, first = sentinel->next;
	struct master master = {0};

	for (int i = 0; i < count && !master.host; i++) {
		int number = (first + i) % count;
		int64_t now = clock_ms(), until = now + (end - now) / (count - i);
		struct redis_address place;
		struct err why;

		redis_address_of_sentinel(address, number, &place);
		OWNED(owned_redis_destroy)
		struct redis *redis = redis_connect(&place, (int)(until - now), &why);
		if (redis && ask_sentinel(redis, address, until, &master, &why))
			sentinel->next = number;
		else {
			if (why.kind == ERR_DENIED)
				err_set(&why, ERR_DENIED,
				    "%s: this Sentinel wants a password, or another one: name a "
				    "file "
				    "with it in sentinel_password_file",
				    place.place);
			keep_worse(err, &why, i == 0);
		}
		redis_address_finish(&place);
	}

	if (!master.host)
		return false;
	*ret_host = master.host;
	*ret_port = master.port;
	return true;
}
