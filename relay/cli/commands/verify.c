/*
 * `verify`: shows the progress of relay/ops/verification.h, and prints its result; with --server a
 * relay makes the verification (relay/cli/verify_server.h).
 */
#include "clock.h"
#include "commands.h"
#include "progress.h"
#include "server.h"
#include "session.h"
#include "verification_result.h"
#include "verify_print.h"
#include "verify_server.h"

#define MIB (INT64_C(1) << 20)

DEFINE_OWNED(struct verification, verification_close)

static int run_verify(const struct call *call)
{
	struct verification_facts facts = {.no_duplicates = call_flag(call, "no-duplicates")};
	struct progress progress;
	struct verification_settings settings = {.sequence = call_text(call, "sequence", NULL),
	    .memory = call_number(call, "memory", 256) * MIB,
	    .watch = progress_watch(&progress)};
	int64_t began;
	struct err err;

	if (server_is_used(call))
		return verify_server_run(call);

	OWNED(owned_config_destroy)
	struct config *config = session_range(call, &settings.range.from_us, &settings.range.to_us,
				    facts.from, facts.to, &err)
				    ? session_config(call, &err)
				    : NULL;

	settings.publisher = config ? session_publisher(call, config, &err) : NULL;
	OWNED(owned_pg_destroy)
	struct pg *pg =
	    settings.publisher ? database_connect(settings.publisher->postgres, &err) : NULL;
	OWNED(owned_verification_close)
	struct verification *verification = pg ? verification_open(pg, &settings, &err) : NULL;

	began = clock_us();
	if (!verification || !verification_run(verification, &err))
		return session_failed(&err);
	facts.seconds = (double)(clock_us() - began) / 1e6;
	facts.place = pg_place(pg);
	return verify_print_result(call, verification_result(verification, &facts));
}

static const struct command_option verify_options[] = {
    {"publisher", "NAME",
	"The publisher to check (default: the only one of the configuration, else \"main\")."},
    {"from", "TIME",
	"Checks only rows created at this time or later, such as 2026-01-02T03:04:05Z (RFC 3339; "
	"UTC if it has no zone)."},
    {"to", "TIME", "Checks only rows created before this time."},
    {"sequence", "FIELD",
	"A field of JSON payloads that grows with each message of a key: order is checked by it "
	"as well."},
    {"no-duplicates", NULL, "Treats a duplicate as a failure."},
    {"memory", "MIB",
	"Memory for rows, 32 bytes each (default 256, enough for 8 million rows; with --server "
	"64, and at most 256). A larger table is checked in rounds, each of which reads the "
	"topics again.",
	1, 65536},
    {"json", NULL, "Prints one JSON object."},
    {"reason", "TEXT",
	"With --server: the reason, stored in outbox.audit (default: outbox-relay verify)."},
    SERVER_OPTIONS,
    {0},
};

const struct command command_verify = {
    .name = "verify",
    .arguments = "",
    .summary = "Finds messages that were lost, repeated or published out of order.",
    .description =
	"Reads every row of the message table and every record of its topics (read_committed), "
	"while the relay and the writers keep running, and reports:\n"
	"committed: rows of the table; published: committed rows that a topic contains;\n"
	"lost: rows that the publisher's log calls published, but that have no record;\n"
	"phantom: records of this publisher without a row, although the row's partition still "
	"exists;\n"
	"altered: records whose topic, key, value or headers differ from the row;\n"
	"out of order: a first occurrence behind a later message of the same key, by position;\n"
	"duplicates: further records of a row (allowed by at-least-once delivery), and how many "
	"of them differ from the first.\n"
	"The command ignores records without this publisher's header `outbox-position`, which "
	"names the publisher and its identity in this database. It counts as not judged: rows "
	"whose records Kafka's retention or compaction removed, rows of topics with `headers = "
	"none`, and records whose rows the table's retention removed. It counts without a "
	"finding: rows that the publisher has not reached yet, rows that are parked, scheduled, "
	"or were skipped by an operator, rows before the publisher's start, rows published "
	"before the publisher got its present identity (`publisher rebase --new-identity`), and "
	"rows that commit while the command reads.\n"
	"With --from or --to the command reads the records from 10 minutes before the range (by "
	"their timestamps) to 10 minutes after it, and reads on only if a row's record is still "
	"missing. So it may not see a duplicate that came later. The timestamp decides whether a "
	"record without a row belongs to the range.\n"
	"Memory: 32 bytes for each row of a round (--memory), and with --sequence 32 bytes for "
	"each of up to 2 million keys. The program and its Postgres and Kafka clients need at "
	"most 64 MiB more for topics of up to 12 partitions, and 4 MiB for each further "
	"partition.\n"
	"With --server the relay makes the verification, as a job that goes on if the command "
	"ends. If its process ends, another one begins it again.\n"
	"The exit status is 0 if nothing was found and 1 if something was found; any other "
	"status means that the check could not be made.\n",
    .options = verify_options,
    .example = "outbox-relay verify --from 2026-01-02 --to 2026-01-03",
    .run = run_verify,
};
