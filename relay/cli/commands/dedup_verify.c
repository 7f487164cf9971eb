#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "dedup_findings.h"
#include "session.h"

struct verdict {
	uint64_t ids, files, damaged, harmless;
	struct dedup_counters counters;
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
	dedup_counters_add(&verdict->counters, part);
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
	dedup_counters_print(&verdict.counters);
	printf("%s: %" PRIu64 " id%s in %" PRIu64 " file%s, %" PRIu64 " damaged, %" PRIu64
	       " harmless\n",
	    verdict.damaged ? "damaged" : "whole", verdict.ids, text_plural((int64_t)verdict.ids),
	    verdict.files, text_plural((int64_t)verdict.files), verdict.damaged, verdict.harmless);
	return verdict.damaged ? EXIT_FOUND : 0;
}

const struct command command_dedup_verify = {
    .name = "dedup verify",
    .arguments = "PATH",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Reads the whole folder of a local dedup store and reports damage.",
    .description =
	"In key logs it checks the header, every batch with its checksum, the order of the "
	"batches, and that every durable byte exists. In maps it checks that each id of the log "
	"is in the filter and in the index, and that sealed slices are unchanged. In counters "
	"and bits it checks the header, and that their number is the one in it. It counts the "
	"saturated counters.\n"
	"Each finding is a line with the file and the byte at which it begins. Damaged: ids are "
	"lost, or may be. Harmless: the next process that opens the store repairs it. An example "
	"is a torn tail, which a crash leaves; its bytes were never reported as durable, and "
	"opening cuts them off.\n"
	"The command locks and writes nothing. While a process has the folder open, it checks "
	"the bytes that the process has written and ignores those it is writing. It needs the "
	"memory of one map.\n"
	"The exit status is 0 if nothing is damaged and 1 if something is; any other status "
	"means that the check could not be made.\n",
    .example = "outbox-relay dedup verify /var/lib/outbox-relay/dedup",
    .no_server = "it reads the store of this machine; call it on the host of the store",
    .run = run_dedup_verify,
};
