#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "dedup_findings.h"
#include "session.h"

struct verdict {
	uint64_t ids, files, damaged, harmless;
};

static void see_folder(void *context, const struct state_folder_view *folder)
{
	(void)context;
	printf("store     %s\n", folder->fault ? "-" : folder->store);
	dedup_holder_print(folder);
}

static void see_part(void *context, const struct dedup_part *part)
{
	struct verdict *verdict = context;
	verdict->ids += part->ids;
	verdict->files += 1 + (part->map_bytes > 0);
}

static void see_found(void *context, const struct dedup_finding *finding)
{
	struct verdict *verdict = context;
	verdict->damaged += !finding->harmless;
	verdict->harmless += finding->harmless;
	dedup_finding_print(finding);
}

static int run_dedup_verify(const struct call *call)
{
	struct err err;
	struct verdict verdict = {0};
	const struct dedup_inspector inspector = {see_folder, see_part, see_found, &verdict};
	if (!dedup_inspect(call->arguments[0], true, &inspector, &err))
		return session_failed(&err);
	printf("%s: %" PRIu64 " ids in %" PRIu64 " files, %" PRIu64 " damaged, %" PRIu64
	       " harmless\n",
	    verdict.damaged ? "damaged" : "whole", verdict.ids, verdict.files, verdict.damaged,
	    verdict.harmless);
	return verdict.damaged ? EXIT_FOUND : 0;
}

const struct command command_dedup_verify = {
    .name = "dedup verify",
    .arguments = "PATH",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Reads a folder of a local store of dedup whole, and tells what is damaged.",
    .description =
	"Key logs: the head, every batch and its checksum, their order, and is all there that was "
	"durable? Maps: is each id of the log in the filter and in the index, is what was sealed "
	"as it was? "
	"Counters and bits: the head, and are there as many as it counts?\n"
	"Each finding is a line with the file and the byte at which it begins. Damaged: ids are "
	"lost, or may be. Harmless: the next who opens the store puts it right, as a torn tail, "
	"which a crash leaves, which was never said to be durable, and which will be cut.\n"
	"It locks and writes nothing. While a process has the folder open, what that has "
	"written is judged, and what it is writing is left out. It takes the memory of one map.\n"
	"The exit status is 0 when all is whole and 1 when something is damaged; any other says "
	"that nothing could be said.\n",
    .example = "outbox-relay dedup verify /var/lib/outbox-relay/dedup",
    .run = run_dedup_verify,
};
