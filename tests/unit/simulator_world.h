#pragma once
/* The parts of the simulator (simulator.h) as they see each other. Times are microseconds. */
#include <stddef.h>
#include "bell.h"
#include "simulator.h"
#include "stream.h"

enum {
	MS = 1000,
	TOPICS = 3,
	PARTITIONS = 8,
	TRANSACTIONAL_IDS = 2,
	KEYS = 24,
	REQUESTS_MAX = 64,
	WRITERS = 8,
	PROCESSES = 3,
	OPERATIONS = 200,
	TICKS_A_ROW = 260,
};

struct world;

/* What is drawn once for a seed. */
struct plan {
	int processes, topics, keys, writers;
	struct stream_settings stream;
	int64_t database_us, kafka_us, think_us; /* typical delays */
	int64_t end_us;                          /* writers and faults end */
	int64_t far_xids;                        /* a straggler beyond is read by pages */
	int row_bytes, batch_records, requests, queue_records;
	bool database_faults, kafka_faults, process_faults, failovers, locks;
	/*
	 * The clock of the database server jumps (lease_clock_us), owners hear of it late, and
	 * calls of transactions go out, or arrive, after others have the shard.
	 */
	bool rivals;
	bool operators, poison, stops, late_topics, growing_topics, long_transaction, schedules;
	bool bell;        /* each process has a doorbell */
	bool bell_alone;  /* and no other fault falls than its own */
	bool bell_faults; /* rings and sessions are lost, a stranger takes the lock */
	bool silent;      /* the trigger of some transactions does not fire */
	int64_t digests;  /* so many different ones: queues share them */
	int killers;      /* rows still to come that kill who reads or sends them */
	bool killed_all_the_time;
};

typedef void event_function(struct world *world, void *object, int64_t number);

/* --- the database --------------------------------------------------------------------------- */

struct snapshot {
	int64_t xmin, xmax;
	int64_t last_id; /* READER_BEYOND_LAST_ID */
	int count;
	int64_t xip[];
};

enum transaction_state { RUNNING, COMMITTED, ABORTED };

struct transaction {
	int64_t xid;   /* 0: none yet */
	int64_t order; /* of the commits */
	enum transaction_state state;
	struct row *rows, *last_row;
	struct transaction *next_running;
	/* the doorbell: how its trigger ended, and the locks */
	bool silent, left, rang, holds_bell, holds_mark;
	bool excused; /* nobody could ring for its rows */
	int64_t left_us;
};

/* A message whose xid is in one window under one epoch: where it was seen. */
struct sighting {
	int64_t epoch, tick;
	struct sighting *next;
};

struct row {
	int64_t id;
	struct transaction *transaction;
	struct row *next; /* of the transaction */
	int key;          /* -1: none */
	int topic, partition, bytes;
	bool undone;     /* rolled back to a savepoint */
	bool refused;    /* by the broker */
	bool unclear;    /* with an error that does not say so */
	bool unsendable; /* by the producer */
	bool mended;     /* refused once, and no longer */
	bool straggled;  /* written for a producer that was given up */
	bool late;       /* the same, and expected elsewhere */
	bool slept;      /* written for an owner that had lost the shard */
	bool paused;     /* parked after an operator had paused its topic */
	enum { HARMLESS, KILLS_WHO_READS, KILLS_WHO_SENDS } kills;
	bool lost;     /* in a failover */
	bool skipped;  /* by an operator: it counts as published */
	int64_t place; /* among the committed rows of its key */
	int64_t committed_us;
	int64_t deliver_us; /* 0: at once */
	int64_t listed_n;   /* the log row that listed it when it was due; 0: none yet */
	int occurrences;
	int64_t first_us; /* of its first occurrence */
	int64_t first_offset;
	const struct partition *first_on;
	struct sighting *sightings;
};

/* count 0: in a log row, nothing is said of the topic; else nothing is known of it. */
struct destinations {
	int32_t count[TOPICS];
	int64_t offset[TOPICS][PARTITIONS]; /* -2: the same */
	bool open[TOPICS], gone[TOPICS];
	int64_t n[TOPICS];
};

enum { TOPIC_PAUSED = -2, NOT_STALLED = -3 };

/* A row of outbox.parked or outbox.scheduled; it stands in the log row, since it changes with it.
 */
struct parked_row {
	struct row *row;
	enum {
		WAITING,
		FREE,
		BEHIND,
		STALLED,
		PAUSED,
		DEAD,
		SCHEDULED
	} state;     /* SCHEDULED: of outbox.scheduled */
	int stalled; /* the partition that took nothing; -1: the topic was missing; TOPIC_PAUSED */
	int64_t next_at, tick;
};

/*
 * Where the last list of scheduled rows ended, `due` of outbox.log: of those that were due at a
 * time none has a smaller id. Ids are from 1 on; 0: nothing is known, INT64_MAX: none was left.
 */
struct list_end {
	int64_t id, at;
};

/* Requests of operators are worked off one after the other, a part with each log row. */
struct asked_work {
	int done;                   /* requests that ended */
	int64_t last_id;            /* rows of the request under way were looked at up to here */
	int64_t left_id, waits_for; /* the first row of an open window, and the window; 0: none */
};

struct log_row {
	struct list_end due;
	struct asked_work work;
	struct parked_row *parked; /* in the order in which they came */
	int parked_count;
	int64_t listed_tick;
	struct row **listed; /* by id */
	int listed_count;
	int64_t n, epoch, nonce, first_tick, acked_id, lease_until;
	int owner, tick_count, timeline;
	bool released; /* by its writer */
	const struct snapshot *ticks[TICKS_A_ROW];
	/* what the row says, what is known with it, and what stands in outbox.destination */
	struct destinations delta, known, table;
	int64_t folded;
	struct deaths deaths;
	struct transaction *transaction;
};

enum operation_kind { ASSIGN_XID, LOCK, INSERT, UNDO, SLEEP, COMMIT, ROLLBACK };

struct operation {
	enum operation_kind kind;
	int64_t number; /* key, duration */
};

struct writer {
	struct transaction *transaction;
	struct operation script[OPERATIONS];
	int length, at;
	bool triggers; /* an insert has come to its trigger */
	int trigger_step;
	int64_t drawn_id; /* an id drawn for the row that is being inserted */
	int64_t generation;
	struct writer *next_waiting;
};

struct key {
	struct writer *holder, *waiting;
	int64_t committed, published;
};

/* The advisory locks of the doorbell (simulator_bell.c). */
struct bell_locks {
	const void *exclusive;        /* the process that sleeps; the world: a stranger */
	int64_t exclusive_generation; /* of its session */
	int shared, marks;
	const struct transaction *ringer;
};

struct database {
	bool up;
	struct bell_locks bell;
	int64_t generation; /* of the server process */
	int timeline;
	int64_t next_xid, last_id, commits;
	struct transaction *running;
	struct row **rows; /* by id */
	int64_t row_capacity;
	struct log_row **log; /* by n; a row under way is there as well */
	int64_t log_capacity;
	struct log_row *newest; /* committed */
	/*
	 * How far the server's clock is from the relays'. Leases end by it: a jump forwards ends
	 * the lease of an owner that counts on it, a jump backwards lengthens one.
	 */
	int64_t lease_clock_us, jumped_us; /* the last jump */
	struct writer writers[WRITERS];
	struct key keys[KEYS];
	struct row **history; /* committed rows in the order of commit */
	int64_t history_count, history_capacity;
	struct writer *long_writer; /* its transaction stays open until the end */
	struct asked {
		bool skips;       /* or retries */
		int key;          /* -1: all rows */
	} requests[REQUESTS_MAX]; /* of operators */
	int asked;
	bool publisher_paused;  /* by an operator */
	unsigned paused_topics; /* by an operator; a bit for each */
	unsigned once_paused;   /* the same, at any time */
};

enum request_kind {
	ASK_TAKE,
	ASK_TICK,
	ASK_RENEW,
	ASK_NEWEST,
	ASK_PAGE,
	ASK_PLACES,
	ASK_LOOKUP,
	ASK_DIGESTS,
	ASK_DESTINATIONS,
	ASK_CLOSED,
};

struct session;

/* A statement of a relay, and its answer. */
struct request {
	enum request_kind kind;
	struct session *session;
	int64_t session_generation, server_generation;
	int owner;
	struct stream_tick tick;
	struct stream_page page;
	struct destinations touched;
	struct parked_row *parks; /* WAITING: refused; BEHIND; STALLED; PAUSED; DEAD; SCHEDULED */
	int park_count;
	struct place {
		int topic, partition;
		int64_t freed_id; /* 0 in the answer: none is left */
	} * recovered;            /* stalled no more */
	int recovered_count, recovered_looked;
	const struct snapshot *last_seen;
	bool begun, dropped, publisher_paused;
	unsigned paused_topics;
	bool cancelled; /* it ends without effect, unless it commits already */
	int64_t sent_us;
	/* on the server */
	const struct log_row *previous;
	const struct snapshot *snapshot;
	bool opens, pages, lists, works;
	struct row **skipped;
	int skipped_count, asked;
	struct list_end due;             /* id 0: nothing was looked for */
	const struct log_row *listed_in; /* says where the rows of a listed window stand */
	struct log_row *row;
	int64_t looked_us;
	/* the answer */
	bool failed, conflict;
	enum stream_verdict verdict;
	bool taken;
	int64_t wait_ms;
	struct stream_taken take;
	bool named[TOPICS], answered[TOPICS], last; /* of DESTINATIONS */
	int after;                                  /* of a page of open ones */
	struct destinations destinations;
	int64_t n, nonce;
	int windows, holder;
	struct row **rows;
	int row_count;
	struct stream_lookup *lookups; /* of LOOKUP; the answer: the places of those found */
	int *found;
	bool *itself;
	int found_count;
	int64_t *digests; /* the answer of DIGESTS */
	int digest_count;
	int64_t listed_tick, due_ms;
	int64_t *emptied; /* digests that have no parked row any more */
	int emptied_count;
};

struct session {
	struct process *process;
	bool up, lost;
	int64_t generation;
	struct request *under_way;
	struct request *answer;
	struct request *ending; /* cancelled, and not over yet: another session comes after it */
	int64_t cancel_at;
	int64_t silent_until; /* answers are on their way until then */
	int fed,
	    cut_at; /* rows of a page handed to the stream; -1 or after how many the link breaks */
};

void database_start(struct world *world);
void database_restart(struct world *world);
void database_fail_over(struct world *world);
void database_clock_jumps(struct world *world, int64_t jump_us);
/* The time by which leases end. */
int64_t database_clock_us(const struct world *world);
void database_send(struct world *world, struct session *session, struct request *request);
void database_end_long_transaction(struct world *world);
void session_open(struct world *world, struct session *session);
void session_break(struct world *world, struct session *session);
/* The statement under way has had its time; true: it is cancelled, and nobody waits for its answer.
 */
bool session_cancel(struct world *world, struct session *session);
bool snapshot_sees(const struct snapshot *snapshot, int64_t xid);
bool snapshot_equal(const struct snapshot *a, const struct snapshot *b);
bool row_is_committed(const struct row *row);
const struct parked_row *find_kept(const struct log_row *log, const struct row *row);
bool row_is_parked(const struct world *world, const struct row *row);
const char *paused_topics_json(struct world *world, unsigned topics);
/* Of outbox.parked_digest, of a row with a key; and of any topic and key. */
int64_t row_digest(const struct world *world, const struct row *row);
int64_t digest_of_key(const void *context, const char *topic, size_t topic_length, const char *key,
    size_t key_length);
/* The number of the first tick that shows the row; 0: none yet. */
int64_t database_tick_of(const struct world *world, const struct row *row);

/* --- Kafka ---------------------------------------------------------------------------------- */

/* What could be read at a time between two offsets of a partition is known; 0: nothing is. */
struct knowledge {
	int64_t us, offset, end;
};

struct wire_record {
	struct row *row; /* NULL: the marker of a transaction */
	bool hidden;     /* in a transaction that is open, or was aborted */
	bool open;       /* in a transaction that is open */
	int transactional_id;
	int owner;
	int64_t epoch, tick, id;
	uint64_t sequence;
	struct knowledge first_tail, tail; /* what its sender knows of the partition */
	const int64_t *payload; /* the message's own memory, until the batch is written */
};

/* What a broker remembers of a producer on a partition. */
struct producer_state {
	const struct wire_producer *producer;
	int id; /* of its transactions */
	int64_t next_sequence;
	struct producer_state *next;
};

struct watermark {
	int64_t epoch, tick, id;
	struct watermark *next;
};

struct partition {
	int64_t end_offset, capacity;
	struct wire_record *records; /* by offset */
	int64_t stable;              /* no record in front of it is in an open transaction */
	int64_t down_until;
	int64_t sick_until; /* it answers with an error that blames no record */
	bool sick_as_topic; /* but one that blames the topic */
	struct producer_state *producers;
	struct watermark *watermarks;
};

struct topic_of_kafka {
	int32_t count, count_before;
	int64_t changed_us; /* when count took the place of count_before */
	bool exists;
	struct partition partitions[PARTITIONS];
};

struct kafka {
	struct topic_of_kafka topics[TOPICS];
	struct wire_producer *fencers[TRANSACTIONAL_IDS]; /* the last one that fenced each id */
};

void kafka_start(struct world *world);
/* The owner has the shard: a log row of its own is committed. */
void kafka_owner_wrote(struct world *world, int owner);
void kafka_end_faults(struct world *world);
void kafka_break(struct world *world);
void kafka_outage(struct world *world);
void kafka_sickness(struct world *world);
/* The count that a process is told; 0: missing. */
int32_t kafka_count(struct world *world, int topic);

struct wire_producer *producer_open(struct world *world, struct process *process);
/* The process forgets it; what is on the wire may still arrive. */
void producer_close(struct world *world, struct wire_producer *producer);
bool producer_has_room(const struct world *world, const struct wire_producer *producer);
void producer_send(struct world *world, struct wire_producer *producer, int topic, int partition,
    const struct wire_record *record);
bool producer_is_broken(const struct wire_producer *producer);
bool producer_is_idle(const struct wire_producer *producer); /* it would write nothing more */
void producer_spoil(struct wire_producer *producer);         /* a false fatal error */

/*
 * init_transactions and commit_transaction, at once under way; process->transactions becomes OPEN,
 * or BROKEN when it failed or nobody knows.
 */
void producer_fence(struct world *world, struct wire_producer *producer);
void producer_commit(struct world *world, struct wire_producer *producer);
/* The commit of the open transaction is about to go out; records go to the other id. */
void producer_turns(struct wire_producer *producer);

/* The newest question of a process for a partition, and how much of its answer was taken. */
struct tail_question {
	uint64_t number;
	int64_t offset, least, end;
	int64_t read_us; /* the end was there then; 0: no answer yet */
	int64_t next;    /* the record that is taken next */
};

/* Answers later, into the process's question. */
void kafka_read_tail(struct world *world, struct process *process, int topic, int partition);

struct report {
	uint64_t sequence;
	enum stream_delivery delivery;
	int64_t offset;
};

/* --- the relays ------------------------------------------------------------------------------ */

/* The session of a doorbell as the server knows it; rings and the answer that are on their way. */
struct bell_session {
	bool connected, listens;
	bool lost; /* the server lost it, and the process does not know */
	int64_t generation;
	int rings;
	enum bell_call call;
	bool answered, granted;
	int64_t granted_us; /* when the lock was last got */
};

struct process {
	struct world *world;
	int index, owner;
	bool running, stopping, shows_refusal, dies;
	int64_t paused_until;
	unsigned paused_topics; /* that it knows of */
	struct stream *stream;
	struct wire_producer *producer;
	enum { UNFENCED, FENCING, FENCED, OPEN, COMMITTING, COMMITTED_NOW, BROKEN } transactions;
	int64_t fencing_take;        /* stream_takes when the last call began */
	bool holds_transaction_call; /* FENCING or COMMITTING: the call has yet to go out */
	struct tail_question tails[TOPICS][PARTITIONS];
	int tails_answered;
	/* by the first reading since the take-over, and by the last one */
	struct knowledge first_tails[TOPICS][PARTITIONS], last_tails[TOPICS][PARTITIONS];
	int64_t producer_at; /* when it may be made again */
	int64_t abandon_at;  /* when it is given up; 0: it is in use */
	struct session log, read;
	struct request *held_call; /* paused between the asking and the sending */
	struct stream_record held;
	bool holds; /* a record that the producer has not taken yet */
	struct message held_message;
	int held_topic;
	struct report *reports;
	int report_count, report_capacity, reports_taken;
	const struct snapshot *seen;
	int64_t topics_at, asked_at, wake_number, wake_at;
	int64_t looked_us, skipped;
	int64_t bounds_tick; /* of the window whose pages may be read */
	bool was_owner, was_caught_up;
	int64_t taken_us;
	int idle_turns;
	struct bell *bell; /* NULL: it polls */
	int seat;
	uint64_t wakes;
	struct stream_looks looks; /* as far as the bell knows them */
	struct bell_session bell_session;
	struct bell_status bell_before;
	/* rows handed to a producer by this owner and not covered by the log when last looked at */
	struct row **sent;
	int64_t sent_count, sent_capacity;
};

void relay_start(struct world *world);
void relay_kill(struct world *world, struct process *process);
void relay_pause(struct world *world, struct process *process, int64_t duration);
void relay_stop(struct world *world, struct process *process);
bool relay_is_paused(const struct world *world, const struct process *process);
void relay_wake(struct world *world, struct process *process);
/* It hears nothing of the log for a while, and its lease ends at once by the server's clock. */
void relay_cut_off(struct world *world, struct process *process, int64_t delay);
void relay_cut_off_owner(struct world *world);
void relay_trace(struct world *world, const struct process *process);
void relay_report(struct world *world, struct process *process, const struct report *report);

/* --- the doorbell ---------------------------------------------------------------------------- */

void bell_start(struct world *world);
/* One step of the trigger after an insert; true: it is over. */
bool bell_trigger(struct world *world, struct transaction *transaction, int step);
/* Its rows are visible, or gone; its locks are freed later. */
void bell_transaction_ends(struct world *world, struct transaction *transaction);
void bell_server_ends(struct world *world);
void bell_begin(struct world *world, struct process *process);
void bell_end(struct world *world, struct process *process);
void bell_turn(struct world *world, struct process *process);
int64_t bell_due_us(const struct process *process);
void bell_look_is_sent(struct process *process, const struct request *request);
void bell_note_looks(struct world *world, struct process *process);
/* The row has come to Kafka for the first time. */
void bell_check_wait(struct world *world, const struct row *row);

/* --- the world ------------------------------------------------------------------------------- */

enum phase { BUSY, DRAINING, HEALED, STOPPING, DONE };

struct world {
	struct simulator_options options;
	struct simulator_result result;
	struct plan plan;
	enum phase phase;
	int64_t phase_us;
	uint64_t random;
	int64_t now;
	struct event *events;
	size_t event_count, event_capacity;
	uint64_t event_order;
	struct chunk *chunks;
	struct database database;
	struct kafka kafka;
	struct process processes[PROCESSES];
	int owners;
	int64_t committed, published;
	int64_t failover_us;       /* the last one */
	int64_t cut_off_us;        /* the last time that an owner was */
	int64_t bell_disturbed_us; /* the last time that a ring may have been lost */
	bool had_killers;
	bool excused; /* a clean stop while a topic was not known yet */
};

extern const char *const topic_names[TOPICS];

void *world_allocate(struct world *world, size_t size); /* zeroed; freed with the world */
void world_after(
    struct world *world, int64_t delay, event_function *run, void *object, int64_t number);
int64_t world_below(struct world *world, int64_t limit);
int64_t world_between(struct world *world, int64_t low, int64_t high);
bool world_chance(struct world *world, int64_t per_million);
/* Around `typical`, now and then much longer. */
int64_t world_delay(struct world *world, int64_t typical);
bool world_has_faults(const struct world *world);
void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_trace(struct world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Grows an array of the world to hold `needed` elements, keeping its contents. */
void *world_grow(struct world *world, void *array, int64_t *capacity, int64_t needed, size_t size);
