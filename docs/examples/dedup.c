/* Handles each message once: lines of "offset id" on standard input. */
#include <dedup.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void handle(const char *id)
{
	printf("handled %s\n", id);
}

/* False: the store does not answer, or refuses the id. */
static bool take(
    struct outbox_dedup *dedup, const struct outbox_dedup_id *id, struct outbox_error *error)
{
	enum outbox_dedup_state state;
	if (!outbox_dedup_check(dedup, id, 1, &state, error))
		return false;
	if (state != OUTBOX_DEDUP_NEW)
		return true;
	handle(id->id);
	return outbox_dedup_done(dedup, id, 1, error);
}

int main(int argc, char **argv)
{
	struct outbox_error error;
	char text[1025];
	int64_t offset;
	struct outbox_dedup *dedup = outbox_dedup_open(argc > 1 ? argv[1] : "", &error);
	bool good = dedup;
	while (good && scanf("%" SCNd64 " %1024s", &offset, text) == 2) {
		const struct outbox_dedup_id id = {
		    .id = text, .length = strlen(text), .time_ms = -1, .offset = offset};
		/* a consumer does it every second or so, and then commits offset + 1 */
		good =
		    take(dedup, &id, &error) && outbox_dedup_checkpoint(dedup, offset + 1, &error);
	}
	if (!good)
		fprintf(stderr, "%s\n", error.message);
	outbox_dedup_close(dedup);
	return good ? 0 : 1;
}
