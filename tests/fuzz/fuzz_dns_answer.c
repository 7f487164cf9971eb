/* Any bytes are an answer of DNS, or none; names end within their fields. */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "dns_answer.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	owned_text struct dns_answer *answer = xmalloc(sizeof *answer);
	bool good = dns_answer_parse(data, size, answer);

	require(answer->count >= 0 && answer->count <= DNS_RECORDS);
	for (int i = 0; good && i < answer->count; i++) {
		const struct dns_record *row = &answer->records[i];

		require(row->type == 1 || row->type == 28 || row->type == 33);
		require(strnlen(row->owner, sizeof row->owner) < sizeof row->owner);
		require(strnlen(row->target, sizeof row->target) < sizeof row->target);
		require(row->type != 33 || row->target[0]);
		require(row->port >= 0 && row->port < 65536 && row->ttl_s <= INT32_MAX);
		require(row->is_extra || answer->ttl_s <= row->ttl_s);
	}
	return 0;
}
