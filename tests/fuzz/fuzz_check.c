/*
 * Any bytes are an answer of the business, or are worth nothing: the first one says whether they
 * are JSON ('J' about one id, 'K' about three) or a message of gRPC, about one id or three.
 */
#include <stdlib.h>
#include <string.h>
#include "text.h"
#include "transport_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_text(const char *text)
{
	uint32_t code;

	while (*text) {
		int length = text_utf8(text, &code);
		require(length > 0 && code >= ' ');
		text += length;
	}
}

static void check(const struct check_answer *answer, int count)
{
	int decided = 0;

	for (int i = 0; i < count; i++) {
		require((unsigned)answer->words[i] < CHECK_WORDS);
		decided += answer->words[i] != CHECK_UNKNOWN;
	}
	require(!answer->failure || (decided == 0 && answer->error[0]));
	check_text(answer->error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct check_id ids[] = {{"7", "", 1}, {"8", "", 1}, {"\xc3\xa4", "", 1}};
	struct check_question question = {.biz_type = "order", .ids = ids};
	struct reply reply;

	if (size == 0)
		return 0;
	question.id_count = 1 + data[0] % 2 * 2;
	reply_begin(&reply, &question);
	if (data[0] / 2 == 'J' / 2)
		transport_http_read(&reply, (const char *)data + 1, size - 1);
	else
		transport_grpc_read(&reply, (const char *)data + 1, size - 1);
	check(&reply.answer, question.id_count);
	reply_finish(&reply);
	return 0;
}
