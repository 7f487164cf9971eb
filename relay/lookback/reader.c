/*
 * The thread that reads a look-back topic and stores prepares and decisions. Begin at turn_reader:
 * collect a batch of records, store it with its offsets in one transaction, look for overdue ids.
 * [places] has the offsets, [a batch] the reaction to refused rows.
 */
#include "reader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "backoff.h"
#include "batch.h"
#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "group.h"
#include "journal.h"
#include "dead_letter.h"
#include "logging.h"
#include "lookback_metrics.h"
#include "pg.h"

enum {
	TURN_MS = 100,  /* the loop turns at least so often */
	LOOK_MS = 250,  /* interval of the search for due prepares, while there are any */
	NOTE_MS = 1000, /* an offset behind records of other sections is stored */
	ENDS_MS = 5000, /* timeout of a question for the ends of partitions; then a pause as long */
	LEAVE_MS = 5000, /* timeout for leaving the group */
	BARE_AFTER = 2,  /* refused dead letters of a record; with parts it may be stored */
};

enum kind {
	PREPARE,
	DUPLICATE,
	CONFLICT,
	TOMBSTONE,
	DECISION,
	DEAD_LETTER,
	FOREIGN,
	LATE_DECISION,
	KINDS
};
static const char *const kinds[KINDS] = {"prepare", "duplicate", "conflict", "tombstone",
    "decision", "dead_letter", "foreign", "late_decision"};

/* A partition, beside what the database knows of it. */
struct place {
	struct journal_place journal;
	/*
	 * The end of the partition at the time `clock`, when due prepares were seen in it; -1: none
	 * were seen since it was read to that end.
	 */
	int64_t end;
	char clock[JOURNAL_CLOCK];
	bool touched; /* something of it is in the batch */
	bool noted;   /* its offset is ahead of the stored one, by records of other sections only */
	/* A record that the database refused alone: it becomes a dead letter. -1: none. */
	int64_t refused_offset;
	enum dead_letter_extent refused_extent;
	struct refusal refusal;
	/*
	 * The place is blocked: the tables refused even the bare dead letter of its record. Until
	 * this time it is left out of the assignment. 0: it is not blocked.
	 */
	int64_t retry_at;
};

/* A record as Kafka has it. */
struct raw {
	struct consumer_record record;
	int refusals; /* by the tables; the dead letter after BARE_AFTER refusals is bare */
};

/* Why a record became a dead letter: logged once its batch is stored. */
struct dead_letter_note {
	int32_t partition;
	int64_t offset;
	struct refusal refusal;
};

struct reader {
	const struct config_lookback *lookback;
	const struct route *route;
	pthread_t thread;
	int stop_fd, event_fd;
	_Atomic bool stop;
	/* of the thread */
	struct group *group;
	struct journal *journal;
	struct batch *batch;
	struct place *places; /* by order of assignment */
	int place_count;
	/* Records as they came, until the batch is stored; raw_of leads to them from the batch's
	 * records. */
	struct raw *raws;
	int raw_count, raw_room;
	int *raw_of;
	int raw_of_room;
	struct dead_letter_note *notes; /* in the batch */
	int note_count, note_room;
	int64_t payload_most; /* known once the tables refused a record; INT64_MAX before */
	struct lookback_header *headers; /* headers of the current record */
	size_t header_room;
	bool member;      /* places are the assignment, and no new assignment waits for an answer */
	bool adrift;      /* places may differ from the database: they must be read again */
	int64_t again_at; /* when all places are assigned anew, since reading failed, perhaps for
			     some places only, or since some are blocked; INT64_MAX: neither */
	bool blind;       /* the ends of places with something due could not be asked for */
	int64_t bytes;    /* held by the group until group_release */
	bool bare_refused; /* the tables named a bare dead letter of the batch */
	int limit; /* maximum records of a batch: fewer than configured while a refused record is
		      searched for */
	int64_t look_at; /* for due prepares; INT64_MAX: there are none */
	int64_t note_at;
	struct backoff backoff;
	struct lookback_metrics metrics;
	struct metric *seen[KINDS], *message_decisions, *stored_batches, *failed_batches;

	pthread_mutex_t mutex; /* guards what follows */
	struct reader_status status;
};

/* --- status ---------------------------------------------------------------------------------- */

static void note_reader_error(struct reader *reader, const char *error)
{
	pthread_mutex_lock(&reader->mutex);
	text_copy(reader->status.error, sizeof reader->status.error, error);
	pthread_mutex_unlock(&reader->mutex);
}

static void note_turn(struct reader *reader)
{
	pthread_mutex_lock(&reader->mutex);
	reader->status.turn_ms = clock_ms();
	pthread_mutex_unlock(&reader->mutex);
}

static void note_partitions(struct reader *reader, int partitions)
{
	int before;

	pthread_mutex_lock(&reader->mutex);
	before = reader->status.partitions;
	reader->status.partitions = partitions;
	pthread_mutex_unlock(&reader->mutex);
	/* all readers of a section together */
	metric_add(reader->metrics.partitions, partitions - (before > 0 ? before : 0));
}

struct reader_status reader_status(struct reader *reader)
{
	struct reader_status status;

	pthread_mutex_lock(&reader->mutex);
	status = reader->status;
	pthread_mutex_unlock(&reader->mutex);
	return status;
}

/* Logs the first failure only; the recovery is logged once as well. */
static void tell_reader_waits(struct reader *reader, const struct err *err)
{
	/* reader_stop cancels the running statement: its failure is no outage. */
	if (atomic_load(&reader->stop))
		return;
	if (!*reader_status(reader).error)
		log_warn("lookback_reader_waits", {"section", LOG_TEXT(reader->lookback->name)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence", LOG_TEXT("it begins again where the database says")});
	note_reader_error(reader, err->message);
}

static void tell_reader_works(struct reader *reader)
{
	backoff_reset(&reader->backoff);
	if (!*reader_status(reader).error)
		return;
	note_reader_error(reader, "");
	log_info("lookback_reader_goes_on", {"section", LOG_TEXT(reader->lookback->name)});
}

/* --- places ---------------------------------------------------------------------------------- */

static void forget_batch(struct reader *reader)
{
	batch_clear(reader->batch);
	for (int i = 0; i < reader->place_count; i++) {
		reader->places[i].touched = reader->places[i].noted = false;
		reader->places[i].end = -1;
	}
}

/*
 * The state in memory is no longer valid: everything is read again from the database, after a
 * pause.
 */
static void begin_again(struct reader *reader)
{
	forget_batch(reader);
	reader->adrift = true;
}

static struct place *find_reader_place(struct reader *reader, int32_t partition)
{
	for (int i = 0; i < reader->place_count; i++)
		if (reader->places[i].journal.partition == partition)
			return &reader->places[i];
	return NULL;
}

static struct journal_place *journal_places(const struct reader *reader)
{
	struct journal_place *list = xcalloc((size_t)reader->place_count + 1, sizeof *list);

	for (int i = 0; i < reader->place_count; i++)
		list[i] = reader->places[i].journal;
	return list;
}

/* Copies the progress in the database into the places. */
static bool ask_progress(struct reader *reader, struct err *err)
{
	owned_text struct journal_place *list = journal_places(reader);

	if (!journal_progress(reader->journal, list, reader->place_count, err))
		return false;
	for (int i = 0; i < reader->place_count; i++) {
		reader->places[i].journal = list[i];
		reader->places[i].journal.next = list[i].start;
	}
	return true;
}

/* Notes that the places agree with the database. */
static void is_found(struct reader *reader)
{
	reader->adrift = false;
	reader->look_at = 0;
	reader->again_at = INT64_MAX;
	for (int i = 0; i < reader->place_count; i++) {
		const struct place *place = &reader->places[i];

		if (place->retry_at > 0 && place->retry_at < reader->again_at)
			reader->again_at = place->retry_at;
	}
}

static int64_t begin_of(const struct place *place)
{
	return place->journal.n > 0 ? place->journal.start : GROUP_BEGINNING;
}

static bool on_assigned(void *context, struct group_place *places, int count, struct err *err)
{
	struct reader *reader = context;

	reader->member = false;
	free(reader->places);
	reader->places = xcalloc((size_t)count + 1, sizeof *reader->places);
	reader->place_count = count;
	for (int i = 0; i < count; i++) {
		reader->places[i].journal.partition = places[i].partition;
		reader->places[i].refused_offset = -1;
	}

	forget_batch(reader);
	/* Without places no record is taken; group_read calls again later. */
	if (!ask_progress(reader, err)) {
		reader->place_count = 0;
		return false;
	}
	for (int i = 0; i < count; i++)
		places[i].offset = begin_of(&reader->places[i]);

	reader->member = true;
	is_found(reader);
	note_partitions(reader, count);
	log_info("lookback_assigned", {"section", LOG_TEXT(reader->lookback->name)},
	    {"partitions", LOG_INT(count)});
	return true;
}

static void on_revoked(void *context)
{
	struct reader *reader = context;

	forget_batch(reader);
	reader->place_count = 0;
	reader->member = false;
	note_partitions(reader, 0);
	log_info("lookback_revoked", {"section", LOG_TEXT(reader->lookback->name)});
}

/* --- a record -------------------------------------------------------------------------------- */

static void count_kind(struct reader *reader, enum kind kind, int amount)
{
	if (amount > 0)
		metric_add(reader->seen[kind], amount);
}

/* The batch's records from `first` on were read from the newest raw one, or from `raw`. */
static void note_raw(struct reader *reader, int first, int raw)
{
	int count = batch_records(reader->batch);

	if (count > reader->raw_of_room) {
		reader->raw_of_room = 2 * count;
		reader->raw_of =
		    xrealloc(reader->raw_of, (size_t)reader->raw_of_room * sizeof *reader->raw_of);
	}
	for (int i = first; i < count; i++)
		reader->raw_of[i] = raw;
}

static void keep_raw(struct reader *reader, const struct consumer_record *record, int refusals)
{
	if (reader->raw_count == reader->raw_room) {
		reader->raw_room = reader->raw_room ? 2 * reader->raw_room : 256;
		reader->raws =
		    xrealloc(reader->raws, (size_t)reader->raw_room * sizeof *reader->raws);
	}
	reader->raws[reader->raw_count++] = (struct raw){.record = *record, .refusals = refusals};
}

/* A dead letter that is refused is replaced by a smaller one of the same record. */
static struct dead_letter_note *note_of_dead_letter(
    struct reader *reader, const struct consumer_record *record)
{
	for (int i = 0; i < reader->note_count; i++)
		if (reader->notes[i].partition == record->partition &&
		    reader->notes[i].offset == record->offset)
			return &reader->notes[i];

	if (reader->note_count == reader->note_room) {
		reader->note_room = reader->note_room ? 2 * reader->note_room : 16;
		reader->notes =
		    xrealloc(reader->notes, (size_t)reader->note_room * sizeof *reader->notes);
	}
	return &reader->notes[reader->note_count++];
}

static void take_dead_letter(struct reader *reader, const struct consumer_record *record,
    const struct refusal *refusal, enum dead_letter_extent extent)
{
	struct dead_letters dead_letters = dead_letters_of(
	    record, reader->lookback->dead_letter, refusal, extent, reader->payload_most);

	for (int i = 0; i < dead_letters.count; i++)
		batch_add_dead_letter(
		    reader->batch, record->partition, record->offset, &dead_letters.list[i]);
	dead_letters_finish(&dead_letters);
	*note_of_dead_letter(reader, record) =
	    (struct dead_letter_note){record->partition, record->offset, *refusal};
}

static void tell_dead_letters(struct reader *reader)
{
	for (int i = 0; i < reader->note_count; i++) {
		const struct dead_letter_note *note = &reader->notes[i];
		log_warn("lookback_dead_letter", {"section", LOG_TEXT(reader->lookback->name)},
		    {"partition", LOG_INT(note->partition)}, {"offset", LOG_INT(note->offset)},
		    {"reason", LOG_TEXT(note->refusal.code)},
		    {"error", LOG_TEXT(note->refusal.text)},
		    {"consequence",
			LOG_TEXT("the record is not processed; it goes to the dead-letter topic")});
	}
	reader->note_count = 0;
}

static void fill_in(const struct config_lookback *lookback, struct lookback_request *request)
{
	if (request->op != LOOKBACK_PREPARE)
		return;
	/* Stored with the prepare: a later configuration does not change them. */
	if (request->check_after_ms < 0)
		request->check_after_ms = lookback->check_after_ms;
	if (request->expires_after_ms < 0)
		request->expires_after_ms = lookback->expires_after_ms;
	if (!request->check_service && !request->check_url && lookback->check)
		request->check_service = xstrdup(lookback->check->name);
}

/* Points into the record and the reader's list of headers. */
static struct lookback_input input_of(struct reader *reader, const struct consumer_record *record)
{
	struct lookback_input input = {.key = record->key,
	    .key_length = record->key_length,
	    .value = record->payload,
	    .value_length = record->payload_length};
	struct lookback_header header;

	while (consumer_header_at(record, input.header_count, &header.name,
	    (const void **)&header.value, &header.length)) {
		if (input.header_count == reader->header_room) {
			reader->header_room = reader->header_room * 2 + 16;
			reader->headers = xrealloc(
			    reader->headers, reader->header_room * sizeof *reader->headers);
		}
		reader->headers[input.header_count++] = header;
	}
	input.headers = reader->headers;
	return input;
}

/* False: it is another section's. */
static bool take_section_record(struct reader *reader, const struct consumer_record *record)
{
	const struct lookback_input input = input_of(reader, record);
	struct lookback_request request = {0};
	struct refusal refusal, nobodys;
	const struct config_lookback *section = reader->lookback;
	bool well = lookback_wire_read(&input, &request, &refusal);
	enum route_part part = route_part(reader->route, section, request.biz_type, &nobodys);

	if (well && part == ROUTE_NOBODYS)
		refusal = nobodys;
	well =
	    well && part == ROUTE_OWN && route_judge(reader->route, &request, &section, &refusal);
	if (well) {
		fill_in(section, &request);
		batch_add(reader->batch, record->partition, record->offset, &request);
		return true;
	}
	lookback_request_finish(&request);
	/* The other section also writes the dead letter; from here it would come twice. */
	if (part == ROUTE_OTHERS)
		return false;
	take_dead_letter(reader, record, &refusal, DEAD_LETTER_WHOLE);
	return true;
}

static int64_t record_bytes(const struct consumer_record *record)
{
	size_t length, total = record->key_length + record->payload_length;
	const char *name;
	const void *value;

	for (size_t i = 0; consumer_header_at(record, i, &name, &value, &length); i++)
		total += strlen(name) + length;
	return (int64_t)total;
}

static void take_consumed_record(struct reader *reader, const struct consumer_record *record)
{
	struct place *place = find_reader_place(reader, record->partition);

	/* The partition is no longer assigned: its new owner reads the record. */
	if (!place)
		return;
	/* Reading began at the first record that Kafka still has, wherever that was. */
	if (place->journal.n == 0 && place->journal.start < 0)
		place->journal.start = record->offset;
	place->journal.next = record->offset + 1;

	int first = batch_records(reader->batch), refusals = 0;
	if (record->offset == place->refused_offset) {
		take_dead_letter(reader, record, &place->refusal, place->refused_extent);
		refusals = place->refused_extent == DEAD_LETTER_BARE ? BARE_AFTER + 1 : 1;
		place->touched = true;
	} else if (take_section_record(reader, record)) {
		place->touched = true;
	} else {
		place->noted = true;
		count_kind(reader, FOREIGN, 1);
	}

	if (batch_records(reader->batch) > first) {
		keep_raw(reader, record, refusals);
		note_raw(reader, first, reader->raw_count - 1);
	}
	reader->bytes += record_bytes(record);
}

/*
 * The failure may concern only one place, or pass in a moment: the records that were read stay
 * valid, and the other places are read on.
 */
static void on_unread(struct reader *reader, const struct err *err)
{
	tell_reader_waits(reader, err);
	if (reader->again_at == INT64_MAX)
		reader->again_at = clock_ms() + backoff_next_ms(&reader->backoff);
}

/*
 * Releases the records of a batch that was stored or forgotten, and those of other sections, which
 * are in no batch. `bytes` counts both: without the reset here, the latter would fill `memory`
 * until the next batch.
 */
static void release_raws(struct reader *reader)
{
	if (batch_records(reader->batch) > 0)
		return;
	reader->raw_count = reader->note_count = 0;
	reader->bytes = 0;
	group_release(reader->group);
}

/* Reads what is there, or waits for a record until `wait_ms`. */
static void collect_records(struct reader *reader, int wait_ms)
{
	struct consumer_record record;
	struct err err;
	bool some = true;
	int taken = 0;

	release_raws(reader);
	while (some && taken < reader->limit && reader->bytes < reader->lookback->memory) {
		/* Waits for the first record only: a batch with records is stored at once. */
		if (!group_read(reader->group, taken ? 0 : wait_ms, &record, &some, &err))
			on_unread(reader, &err);
		/* Records that come while it is adrift are read again after find_back. */
		if (some && !reader->adrift)
			take_consumed_record(reader, &record);
		else
			release_raws(reader);
		taken += some;
	}
}

/* --- overdue --------------------------------------------------------------------------------- */

/*
 * Notes the current end of each place with something due, and the time. A place that was not yet
 * read up to the end noted before keeps that end: with a new end each time, a reader that lags
 * would never reach it.
 */
static void ask_ends(struct reader *reader, const int64_t *wait_ms, const char *clock)
{
	owned_text struct group_place *ends =
	    xcalloc((size_t)reader->place_count + 1, sizeof *ends);
	int count = 0;
	struct err err;

	for (int i = 0; i < reader->place_count; i++)
		if (wait_ms[i] <= 0 && reader->places[i].end < 0)
			ends[count++].partition = reader->places[i].journal.partition;
	/* The clock was read before: everything that was written by then lies below these ends. */
	reader->blind = count > 0 && !group_ends(reader->group, ends, count, ENDS_MS, &err);
	if (reader->blind)
		tell_reader_waits(reader, &err);
	for (int i = 0; i < count; i++) {
		struct place *place = find_reader_place(reader, ends[i].partition);

		place->end = ends[i].offset;
		text_copy(place->clock, sizeof place->clock, clock);
	}
}

static int64_t nearest_wait(const int64_t *wait_ms, int count)
{
	int64_t least = INT64_MAX;

	for (int i = 0; i < count; i++)
		least = wait_ms[i] < least ? wait_ms[i] : least;
	return least;
}

static bool look_for_due(struct reader *reader, struct err *err)
{
	owned_text struct journal_place *list = journal_places(reader);
	owned_text int64_t *wait_ms = xcalloc((size_t)reader->place_count + 1, sizeof *wait_ms);
	char clock[JOURNAL_CLOCK] = "";
	int64_t least, pause;

	if (!journal_due(reader->journal, list, reader->place_count, wait_ms, clock, err))
		return false;
	ask_ends(reader, wait_ms, clock);
	least = nearest_wait(wait_ms, reader->place_count);
	pause = reader->blind ? ENDS_MS : LOOK_MS;
	/* Without anything due, the next stored prepare sets the time (go_on). */
	reader->look_at =
	    least == INT64_MAX ? INT64_MAX : clock_ms() + (least > pause ? least : pause);
	return true;
}

/* Was the place read to the end that it had when its prepares were due? */
static bool is_caught_up(const struct reader *reader, const struct place *place)
{
	return place->end >= 0 && place->journal.start >= 0 &&
	       (group_position(reader->group, place->journal.partition) >= place->end ||
		   place->journal.next >= place->end);
}

/* --- a batch --------------------------------------------------------------------------------- */

static void count_batch(struct reader *reader, const struct journal_outcome *outcome)
{
	struct batch_figures figures = batch_figures(reader->batch);

	count_kind(reader, PREPARE, figures.prepares);
	count_kind(reader, DUPLICATE, figures.duplicates);
	count_kind(reader, CONFLICT, figures.conflicts);
	count_kind(reader, TOMBSTONE, figures.tombstones);
	count_kind(reader, DECISION, figures.decisions);
	count_kind(reader, DEAD_LETTER, figures.dead_letters);
	count_kind(reader, LATE_DECISION, outcome->lost);
	metric_add(reader->message_decisions, (double)outcome->won);
	metric_add(reader->metrics.duplicates, (double)outcome->duplicates);
	metric_add(reader->metrics.promoted, outcome->promoted);
	metric_add(reader->stored_batches, 1);
}

/*
 * Moves the offset past entries behind the last record that are no records for us (transaction
 * markers, records of aborted transactions). Kafka deletes them in time, and an offset before them
 * would then no longer exist.
 */
static void pass_marks(struct reader *reader, struct place *place)
{
	int64_t position = group_position(reader->group, place->journal.partition);

	if (place->journal.start < 0 || position <= place->journal.next)
		return;
	place->journal.next = position;
	place->noted = true;
}

/*
 * The places whose progress is to be stored; the others wait. A record that is tried by itself
 * (on_batch_refused) comes with nothing of other places.
 */
static int list_places(struct reader *reader, struct journal_place *list)
{
	bool alone = reader->limit == 1 && batch_records(reader->batch) > 0;
	bool note = !alone && clock_ms() >= reader->note_at;
	int count = 0;

	for (int i = 0; i < reader->place_count; i++) {
		struct place *place = &reader->places[i];

		/*
		 * on_batch_refused computes the offset of a lone record from `next`. The consumer
		 * is beyond the `next` of a place that was cut (cut_held_places).
		 */
		bool whole = !alone && place->retry_at == 0;
		if (whole)
			pass_marks(reader, place);
		text_copy(place->journal.horizon, JOURNAL_CLOCK,
		    whole && is_caught_up(reader, place) ? place->clock : "");
		if (place->touched || *place->journal.horizon || (place->noted && note))
			list[count++] = place->journal;
	}
	return count;
}

/* Drops the records of the place from `offset` on: they are read again later. */
static void cut_place(struct reader *reader, struct place *place, int64_t offset)
{
	int32_t partition = place->journal.partition;
	int kept = 0;

	place->touched = place->noted = false;
	place->journal.next = offset;
	for (int i = 0; i < batch_records(reader->batch); i++) {
		const struct consumer_record *record = &reader->raws[reader->raw_of[i]].record;

		if (record->partition != partition)
			continue;
		if (record->offset >= offset)
			batch_drop(reader->batch, i);
		else
			place->touched = true;
	}

	/* Their dead letters are written, and logged, when they are read again. */
	for (int i = 0; i < reader->note_count; i++)
		if (reader->notes[i].partition != partition || reader->notes[i].offset < offset)
			reader->notes[kept++] = reader->notes[i];
	reader->note_count = kept;
}

/*
 * Some decisions cannot be made now, usually because an open transaction has the unique key of a
 * message. Only what lies behind them in their partitions waits for it: everything else of the
 * batch is stored, and these places are tried again after a pause. False: that is not the reason.
 */
static bool cut_held_places(struct reader *reader, const struct err *err)
{
	int records[JOURNAL_HELD];
	bool full;
	int count = journal_held(reader->journal, reader->batch, records, &full);
	int64_t retry_at = full ? clock_ms() : clock_ms() + backoff_next_ms(&reader->backoff);

	if (count == 0)
		return false;
	batch_again(reader->batch);
	for (int i = 0; i < count; i++) {
		const struct consumer_record *record =
		    &reader->raws[reader->raw_of[records[i]]].record;
		struct place *place = find_reader_place(reader, record->partition);
		struct err why = *err;

		if (place->journal.next <= record->offset)
			continue;
		cut_place(reader, place, record->offset);
		place->retry_at = retry_at;
		err_prefix(&why, "partition %d waits at offset %lld", (int)record->partition,
		    (long long)record->offset);
		if (!full)
			tell_reader_waits(reader, &why);
	}

	/* The next turn seeks the records that were dropped. */
	reader->adrift = true;
	reader->again_at = retry_at < reader->again_at ? retry_at : reader->again_at;
	return true;
}

/* Commits the offsets to Kafka, only for people: the database has them already. */
static void note_offsets(struct reader *reader)
{
	owned_text struct group_place *list =
	    xcalloc((size_t)reader->place_count + 1, sizeof *list);
	int count = 0;

	for (int i = 0; i < reader->place_count; i++)
		if (reader->places[i].journal.n > 0)
			list[count++] = (struct group_place){
			    reader->places[i].journal.partition, reader->places[i].journal.start};
	reader->note_at = clock_ms() + NOTE_MS;
	if (count > 0)
		group_note(reader->group, list, count);
}

static void go_on(struct reader *reader, const struct journal_place *list, int count,
    const struct journal_outcome *outcome)
{
	bool prepared = batch_figures(reader->batch).prepares > 0;
	int records = batch_records(reader->batch);

	for (int i = 0; i < count; i++) {
		struct place *place = find_reader_place(reader, list[i].partition);

		/* The row that this batch wrote; the fence of the next batch compares with it. */
		place->journal.n++;
		place->journal.start = place->journal.next;
		place->touched = place->noted = false;
		/* The prepares up to the horizon were promoted: the next search has a new end. */
		if (*place->journal.horizon)
			place->end = -1;
	}

	count_batch(reader, outcome);
	tell_dead_letters(reader);
	batch_clear(reader->batch);
	/* A new prepare may be the next one that comes due. */
	if (prepared && reader->look_at > clock_ms() + LOOK_MS)
		reader->look_at = clock_ms() + LOOK_MS;
	if (reader->limit < reader->lookback->batch && records > 0)
		reader->limit *= 2;
	if (reader->limit > reader->lookback->batch)
		reader->limit = (int)reader->lookback->batch;

	if (clock_ms() >= reader->note_at)
		note_offsets(reader);
}

/* So that block_places finds it. */
static void note_bare_refused(struct reader *reader, const struct consumer_record *record)
{
	struct place *place = find_reader_place(reader, record->partition);

	place->refused_offset = record->offset;
	place->refused_extent = DEAD_LETTER_BARE;
	reader->bare_refused = true;
}

/*
 * A record that the tables refused becomes a dead letter; in parts, and at last bare, when they
 * refuse that. False: they refused the bare one.
 */
static bool turn_into_dead_letter(struct reader *reader, int record, const char *error)
{
	int raw = reader->raw_of[record];
	int count = batch_records(reader->batch);
	struct refusal refusal = {.code = "not_storable"};

	/* A record with several refused rows is listed for each of them. */
	if (batch_is_dropped(reader->batch, record))
		return true;
	if (reader->raws[raw].refusals > BARE_AFTER) {
		note_bare_refused(reader, &reader->raws[raw].record);
		return false;
	}
	/* Also the parts of an earlier dead letter, which this one replaces. */
	for (int i = 0; i < count; i++)
		if (reader->raw_of[i] == raw)
			batch_drop(reader->batch, i);
	text_copy(refusal.text, sizeof refusal.text, error);
	take_dead_letter(reader, &reader->raws[raw].record, &refusal,
	    reader->raws[raw].refusals++ < BARE_AFTER ? DEAD_LETTER_WHOLE : DEAD_LETTER_BARE);
	note_raw(reader, count, raw);
	return true;
}

/*
 * The tables refused something in the batch. They say which records, and those become dead letters:
 * the others are stored at once, without being read again. False: they named none, or could not
 * say, or named a bare dead letter.
 */
static bool set_aside(struct reader *reader, struct err *err)
{
	struct journal_refusal *list = NULL;
	int count = 0;
	bool found = journal_refused(reader->journal, reader->batch, &list, &count, err) &&
		     count > 0 && journal_payload_most(reader->journal, &reader->payload_most, err);

	/* First, since records are added only to a batch that is not worked out. */
	batch_again(reader->batch);
	for (int i = 0; found && i < count; i++)
		found = turn_into_dead_letter(reader, list[i].record, list[i].error);
	free(list);
	return found;
}

/*
 * Blocks the places whose record in the batch is refused even as a bare dead letter: nothing of it
 * is left to leave out, and a record is never skipped. The other places are read on, and these are
 * tried again after a pause: an operator may have changed the tables. False: there is none.
 */
static bool block_places(struct reader *reader, const struct err *err)
{
	int64_t retry_at = 0;

	for (int i = 0; i < reader->place_count; i++) {
		struct place *place = &reader->places[i];
		struct err why = *err;

		if (place->refused_extent != DEAD_LETTER_BARE ||
		    place->journal.start > place->refused_offset ||
		    place->journal.next <= place->refused_offset)
			continue;
		if (retry_at == 0)
			retry_at = clock_ms() + backoff_next_ms(&reader->backoff);
		place->retry_at = retry_at;
		err_prefix(&why,
		    "partition %d waits at offset %lld: even a dead letter without content is "
		    "refused",
		    (int)place->journal.partition, (long long)place->refused_offset);
		tell_reader_waits(reader, &why);
	}
	return retry_at > 0;
}

/*
 * Something in the batch cannot be stored, and the tables do not name it. The batch is read again
 * in smaller parts, until a single record is left: that becomes a dead letter, without its content
 * if it is refused again. False: nothing smaller can be tried.
 */
static bool on_batch_refused(
    struct reader *reader, const struct journal_place *list, int count, const struct err *err)
{
	struct place *place = count == 1 ? find_reader_place(reader, list[0].partition) : NULL;

	/* Unless the record is named or alone, another one may be the refused one. */
	if ((reader->bare_refused || reader->raw_count == 1) && block_places(reader, err))
		return true;
	if (reader->limit > 1) {
		reader->limit = reader->limit / 8 > 1 ? reader->limit / 8 : 1;
		return true;
	}
	/* One record may have become several dead letters, so the raw ones count. */
	if (!place || reader->raw_count != 1)
		return false;

	place->refused_extent =
	    place->refused_offset == list[0].next - 1 ? DEAD_LETTER_BARE : DEAD_LETTER_WHOLE;
	place->refused_offset = list[0].next - 1;
	place->refusal.code = "not_storable";
	text_copy(place->refusal.text, sizeof place->refusal.text, err->message);
	return true;
}

/*
 * The database may have no room for a batch of this size, or takes longer than allowed: tries a
 * smaller one.
 */
static void try_less(struct reader *reader)
{
	int half = batch_records(reader->batch) / 2;

	if (half > 0 && half < reader->limit)
		reader->limit = half;
}

/*
 * Kafka and the database work: something was stored, or every place was read to its end and left
 * nothing to store. An empty turn by itself proves neither: records that could not be stored may
 * not have been read again yet.
 */
static bool is_reader_well(const struct reader *reader, bool stored)
{
	if (!reader->member || reader->again_at != INT64_MAX || reader->blind)
		return false;
	for (int i = 0; i < reader->place_count; i++) {
		int32_t partition = reader->places[i].journal.partition;

		if (group_position(reader->group, partition) < 0 ||
		    (!stored && !group_at_end(reader->group, partition)))
			return false;
	}
	return true;
}

/*
 * Sets refused records aside and tries again; their dead letters may be refused as well, and the
 * last of them is bare.
 */
static bool store_batch(struct reader *reader, const struct journal_place *list, int count,
    struct journal_outcome *ret_outcome, struct err *err)
{
	reader->bare_refused = false;
	fault_point("before_lookback_known");
	/*
	 * Outside the transaction: only readers write prepares and tombstones, and if another
	 * reader has the partition by then, the fence refuses the batch.
	 */
	if (!journal_know(reader->journal, reader->batch, err))
		return false;
	for (int tries = 0;; tries++) {
		struct err refused;

		batch_work(reader->batch);
		fault_point("before_lookback_apply");
		if (journal_apply(reader->journal, reader->batch, list, count, ret_outcome, err))
			return true;
		if (err->kind != ERR_REJECT || tries == BARE_AFTER + 2)
			return false;
		if (!set_aside(reader, &refused))
			return false;
	}
}

static bool store_collected(struct reader *reader, struct err *err)
{
	owned_text struct journal_place *list =
	    xcalloc((size_t)reader->place_count + 1, sizeof *list);
	struct journal_outcome outcome;
	int count;
	bool stored;

	/* Each try leaves less of the batch. */
	do {
		count = list_places(reader, list);
		stored = count > 0 && store_batch(reader, list, count, &outcome, err);
	} while (count > 0 && !stored && err->kind == ERR_RETRY && cut_held_places(reader, err));

	if (count == 0) {
		if (is_reader_well(reader, false))
			tell_reader_works(reader);
		return true;
	}
	if (!stored) {
		/* Offsets or due prepares alone are refused: like an outage, that needs a pause. */
		if (err->kind == ERR_REJECT && !on_batch_refused(reader, list, count, err))
			err->kind = ERR_RETRY;
		/* A fenced batch says nothing about its size. */
		else if (err->kind != ERR_REJECT && err->kind != ERR_FENCED)
			try_less(reader);
		return false;
	}
	fault_point("after_lookback_apply");
	go_on(reader, list, count, &outcome);
	if (is_reader_well(reader, true))
		tell_reader_works(reader);
	return true;
}

/* --- the loop -------------------------------------------------------------------------------- */

/*
 * A blocked place whose pause is over is read as if nothing of it had been refused: if an operator
 * changed the tables, the record needs no bare dead letter.
 */
static void unblock_places(struct reader *reader, int64_t now)
{
	for (int i = 0; i < reader->place_count; i++) {
		struct place *place = &reader->places[i];

		if (place->retry_at == 0 || place->retry_at > now)
			continue;
		place->retry_at = 0;
		place->refused_offset = -1;
		place->refused_extent = DEAD_LETTER_WHOLE;
	}
}

/*
 * Goes back to the offsets in the database: stored records are not read again, and records that
 * were not stored are. A blocked place has no position until its retry, so nothing takes it for
 * read (pass_marks, is_caught_up) or for healthy (is_reader_well).
 */
static bool find_back(struct reader *reader, struct err *err)
{
	owned_text struct group_place *list =
	    xcalloc((size_t)reader->place_count + 1, sizeof *list);
	int count = 0;

	forget_batch(reader);
	if (!ask_progress(reader, err))
		return false;
	unblock_places(reader, clock_ms());
	for (int i = 0; i < reader->place_count; i++) {
		const struct place *place = &reader->places[i];

		if (place->retry_at == 0)
			list[count++] =
			    (struct group_place){place->journal.partition, begin_of(place)};
	}
	if (reader->place_count > 0 && !group_seek(reader->group, list, count, err))
		return false;
	is_found(reader);
	return true;
}

static struct group *create_reader_group(struct reader *reader, struct err *err)
{
	const struct config_lookback *lookback = reader->lookback;
	const struct group_callbacks callbacks = {on_assigned, on_revoked, reader};

	return group_create(lookback->kafka, lookback->group, lookback->topic, &callbacks, err);
}

/* Records that are not stored yet are read again. Without a new member the old one goes on. */
static void renew_reader_group(struct reader *reader)
{
	struct err err;
	struct group *fresh = create_reader_group(reader, &err);

	if (!fresh) {
		tell_reader_waits(reader, &err);
		return;
	}
	on_revoked(reader);
	release_raws(reader);
	group_destroy(reader->group, LEAVE_MS);
	reader->group = fresh;
}

static bool turn_reader(struct reader *reader, struct err *err)
{
	int64_t wait = reader->place_count > 0 ? reader->look_at - clock_ms() : TURN_MS;

	wait = wait < 0 ? 0 : wait;
	if (group_is_stale(reader->group))
		renew_reader_group(reader);
	/* A place whose offset did not exist is fetched again only after a seek (group_seek). */
	reader->adrift |= clock_ms() >= reader->again_at;
	if (reader->adrift && !find_back(reader, err))
		return false;
	collect_records(reader, wait < TURN_MS ? (int)wait : TURN_MS);
	if (reader->place_count > 0 && clock_ms() >= reader->look_at && !look_for_due(reader, err))
		return false;
	return store_collected(reader, err);
}

/* Serves the group while it waits; otherwise the group would revoke the partitions. */
static void wait_a_moment(struct reader *reader)
{
	int64_t until = clock_ms() + backoff_next_ms(&reader->backoff);

	while (!atomic_load(&reader->stop) && clock_ms() < until) {
		note_turn(reader);
		collect_records(reader, 20);
	}
}

static void on_failure(struct reader *reader, const struct err *err)
{
	metric_add(reader->failed_batches, 1);

	if (err->kind == ERR_REJECT)
		log_info("lookback_batch_refused", {"section", LOG_TEXT(reader->lookback->name)},
		    {"error", LOG_TEXT(err->message)}, {"next", LOG_INT(reader->limit)});
	else if (err->kind == ERR_FENCED)
		log_info("lookback_fenced", {"section", LOG_TEXT(reader->lookback->name)},
		    {"error", LOG_TEXT(err->message)});
	else
		tell_reader_waits(reader, err);

	/* Before the wait, which reads on to stay in the group: those records must not be taken. */
	begin_again(reader);
	/* A smaller part of a refused batch can be tried at once: nothing is away. */
	if (err->kind != ERR_REJECT)
		wait_a_moment(reader);
}

static void *run_reader(void *context)
{
	struct reader *reader = context;
	struct err err;

	pthread_setname_np(pthread_self(), "lookback-reader");
	pg_interrupt_by(reader->stop_fd);
	while (!atomic_load(&reader->stop)) {
		note_turn(reader);
		if (!turn_reader(reader, &err) && !atomic_load(&reader->stop))
			on_failure(reader, &err);
	}
	/* Here and not in reader_join: other members wait for the partitions. */
	group_destroy(reader->group, LEAVE_MS);
	reader->group = NULL;
	pthread_mutex_lock(&reader->mutex);
	reader->status.ended = true;
	pthread_mutex_unlock(&reader->mutex);
	if (eventfd_write(reader->event_fd, 1) != 0)
		log_debug("already_told", {"section", LOG_TEXT(reader->lookback->name)});
	return NULL;
}

/* --- start and end --------------------------------------------------------------------------- */

static void make_metrics(struct reader *reader)
{
	struct lookback_metrics metrics = lookback_metrics(reader->lookback->name);

	reader->metrics = metrics;
	for (int i = 0; i < KINDS; i++)
		reader->seen[i] = METRIC_LABELLED(metrics.records, kinds[i]);
	reader->message_decisions = METRIC_LABELLED(metrics.decisions, "message");
	reader->stored_batches = METRIC_LABELLED(metrics.batches, "stored");
	reader->failed_batches = METRIC_LABELLED(metrics.batches, "failed");
}

static void reader_free(struct reader *reader)
{
	group_destroy(reader->group, LEAVE_MS);
	journal_destroy(reader->journal);
	batch_destroy(reader->batch);
	if (reader->stop_fd >= 0)
		close(reader->stop_fd);
	pthread_mutex_destroy(&reader->mutex);

	free(reader->raws);
	free(reader->notes);
	free(reader->raw_of);
	free(reader->headers);
	free(reader->places);
	free(reader);
}

struct reader *reader_start(const struct config_lookback *lookback, const struct route *route,
    const char *name, int event_fd, struct err *err)
{
	struct reader *reader = xcalloc(1, sizeof *reader);
	int error;

	reader->lookback = lookback;
	reader->route = route;
	reader->limit = (int)lookback->batch;
	reader->look_at = reader->again_at = INT64_MAX;
	reader->backoff = (struct backoff){
	    .first_ms = 100, .cap_ms = 5000, .jitter = 0.3, .seed = (uint64_t)clock_random()};
	reader->payload_most = INT64_MAX;
	reader->status = (struct reader_status){.turn_ms = clock_ms(), .partitions = -1};
	pthread_mutex_init(&reader->mutex, NULL);

	reader->event_fd = event_fd;
	reader->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	reader->journal = journal_create(lookback, name);
	reader->batch = batch_create();
	make_metrics(reader);
	reader->group = create_reader_group(reader, err);
	if (!reader->group)
		goto fail;

	error = pthread_create(&reader->thread, NULL, run_reader, reader);
	if (error == 0)
		return reader;
	err_set(
	    err, ERR_RETRY, "no thread for the look-back %s: %s", lookback->name, strerror(error));
fail:
	reader_free(reader);
	return NULL;
}

void reader_stop(struct reader *reader)
{
	atomic_store(&reader->stop, true);
	if (eventfd_write(reader->stop_fd, 1) != 0)
		log_debug("already_told", {"section", LOG_TEXT(reader->lookback->name)});
}

void reader_join(struct reader *reader)
{
	if (!reader)
		return;
	pthread_join(reader->thread, NULL);
	reader_free(reader);
}
