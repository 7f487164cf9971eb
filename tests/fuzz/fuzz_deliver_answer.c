/*
 * Any bytes are the answer of an application: the first two say its status and the form, the rest
 * is the body. Every message has a verdict, and every reason is text that a log and a header may
 * hold.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "deliver_answer.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void require_text(const char *text)
{
	uint32_t code;

	while (*text) {
		int length = text_utf8(text, &code);
		require(length > 0 && code >= ' ');
		text += length;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const ids[] = {"7", "8", "\xc3\xa4", "a\"b"};
	static const int statuses[] = {
	    200, 202, 204, 301, 400, 404, 408, 409, 429, 500, 503, 100, 0, 999};
	struct deliver_judge judge = {.retry_after_max_ms = 60000};
	struct deliver_answer answer;

	if (size < 2)
		return 0;
	judge.form = data[1] % 2 ? DELIVER_BATCH : DELIVER_SINGLE;
	size_t count = judge.form == DELIVER_BATCH ? 1 + data[1] / 2 % 4 : 1;
	owned_text char *body = xmalloc(size - 1);
	memcpy(body, data + 2, size - 2);
	body[size - 2] = '\0';
	const struct deliver_response response = {
	    .status = statuses[data[0] % (sizeof statuses / sizeof *statuses)],
	    .retry_after_ms = data[0] / 16 * 10000 - 1,
	    .body = body,
	    .length = size - 2};
	deliver_answer_read(&answer, &judge, ids, count, &response);
	require(answer.count == count && answer.label && answer.label[0]);
	for (size_t i = 0; i < count; i++) {
		const struct deliver_verdict *verdict = &answer.verdicts[i];

		require((unsigned)verdict->result < OUTBOX_INBOX_RESULTS);
		require(verdict->after_ms >= 0 && verdict->after_ms <= judge.retry_after_max_ms);
		require(strlen(verdict->reason) < sizeof verdict->reason);
		require_text(verdict->reason);
	}
	deliver_answer_finish(&answer);
	return 0;
}
