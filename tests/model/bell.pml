/*
 * The doorbell between writers and a sleeping relay, for Spin: sql/migrations/0017_bell.sql on one
 * side, outbox/publish/core/bell.c on the other. test_model.py explores every interleaving, and
 * shows that the mutants fail.
 *
 * Writers run transactions: the row, the trigger's tests of three locks one after the other, then
 * COMMIT as PostgreSQL does it: visible, locks freed one by one, notification sent. A shard's look
 * has two steps, the snapshot and the answer. A process has one bell session for all its shards;
 * each statement has steps on the server and one for the answer. Anything may happen between two
 * steps.
 *
 * Time passes only when nobody has anything to do at once, so everything except the polls and the
 * transactions takes no time. A poll of an awake process is due after 1 unit, one of a sleeping
 * process after FALLBACK units. Whatever must hold is checked whenever time passes (check_message).
 */

/* The size of the model. */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef SHARDS
#define SHARDS 1
#endif
#ifndef PROCESSES
#define PROCESSES 1
#endif
#ifndef LOSSES
#define LOSSES 0 /* sessions that the server loses while the process lives */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef SILENT
#define SILENT 0 /* writers whose trigger does not fire: those with the highest numbers */
#endif
#ifndef FOREIGNER
#define FOREIGNER 0 /* somebody else locks the bell now and then */
#endif

/*
 * PROBES_TAKE_TIME: a relay's probe of locks 2 and 3 holds them until its statement ends, so that
 * a writer may meet it.
 */

/* Mistakes that the checks must find, one at a time: the environment's MUTANT. */
#define NO_LOOK_AFTER_LOCK 1
#define OLD_LOOK_COUNTS 2            /* one that began before the lock was granted */
#define TEST_ENDS_AT_ONCE 3          /* lock 1 is freed after the test, as a session's lock */
#define FREED_BEFORE_VISIBLE 4       /* locks are freed before the rows are visible */
#define RING_IGNORED_WHILE_LOOKING 5
#define RING_DOES_NOT_CLEAR 6        /* rows that are found before their ring count as missed */
#define MARK_MISSING 7               /* a writer that leaves the ring holds no lock */
#define LEAVES_AT_ONCE 8             /* without the second tests of locks 1 and 2 */
#define NO_PROBE 9                   /* before the lock is tried */
#define NO_POLL_ASLEEP 10
#define SLEEPS_ON_AFTER_RING 11
#define PROBES_BESIDE_SLEEPER 12     /* of 2 processes */
#define ONE_SHARD_IS_ENOUGH 13       /* of 2 */
#define TAKEN_SHARD_DOES_NOT_LOOK 14 /* after a crash of the other process */
#define LISTENS_LATE 15              /* after the lock was granted */
#define LEAVES_WITHOUT_MARK 17       /* when a probe has lock 3 */
#define RING_IGNORED_WHILE_TRYING 16 /* granted by the server, but not heard of yet */

byte mutant;
#define IS(m) (mutant == m)

#define FALLBACK 2
#define DISTRUST 2
#define NOBODY 7
#define A_PROBE 6 /* the probe of a relay holds the ring to the end of its statement */

/* --- the database --------------------------------------------------------------------------- */

mtype:trigger = { NOT_FIRED, GRANTED_SHARED, RINGS, LEFT };

mtype:trigger test[WRITERS]; /* how the trigger ended */
bit holds_left[WRITERS];
bit committed[WRITERS]; /* the message is visible and not published */
byte age[WRITERS];      /* for so many units */
bit excused[WRITERS];   /* nobody could ring for it */

byte bell = NOBODY;   /* lock 1, exclusive: the process that sleeps; PROCESSES: a foreigner */
byte shared;          /* lock 1, shared: writers that tested it while the relay was awake */
byte ringer = NOBODY; /* lock 2: the writer that rings */
byte left;            /* lock 3, shared: writers that left the ring to another one */
byte probes;          /* lock 3, exclusive: a statement of a relay */

/* --- the processes -------------------------------------------------------------------------- */

mtype:state = { AWAKE, TRYING, LOOKING, ASLEEP, LEAVING };
mtype:call = { NONE, LISTEN, PROBE, PROBE_RING, PROBE_LEFT, PROBED, TRY, GRANTED, REFUSED,
	UNLOCK };

mtype:state state[PROCESSES];
mtype:call call[PROCESSES];
bit alive[PROCESSES];
bit session[PROCESSES];    /* the server has it */
bit connected[PROCESSES];  /* the process believes so */
bit listens[PROCESSES];
bit rung[PROCESSES];       /* a notification is on its way */
bit again[PROCESSES];      /* a ring came while the lock was tried */
bit tried[PROCESSES];      /* in this unit */
bit suspects[PROCESSES];   /* rows were found without a ring, but it may be on its way */
bit false_miss[PROCESSES]; /* they were rung for */
byte distrust[PROCESSES];

byte owner[SHARDS];
bit reads[SHARDS];  /* a look is under way */
bit counts[SHARDS]; /* it began under the lock */
bit looked[SHARDS]; /* a look that counts has ended */
bit asked[SHARDS];  /* look at once */
byte since[SHARDS]; /* units since the last look began */
byte seen[SHARDS];  /* by the look: a bit for each writer */

bit phase; /* changes when time passes */
byte losses, crashes;

#define shard_of(w) ((w) % SHARDS)
#define HOLDS_LOCK(p) (state[p] == LOOKING || state[p] == ASLEEP)
#define IS_BLIND(p) (connected[p] && !session[p])

/*
 * No committed message waits longer than the fallback poll. An awake process finds it with its
 * next poll. A sleeping one was rung for it, unless nobody could ring.
 */
inline check_message(w, p)
{
	if
	:: committed[w] && p != NOBODY && alive[p] && !HOLDS_LOCK(p) -> assert(age[w] == 0)
	:: committed[w] && p != NOBODY && alive[p] && HOLDS_LOCK(p) ->
		assert(age[w] < FALLBACK);
		assert(test[w] == NOT_FIRED || IS_BLIND(p) || excused[w] ||
		    (test[w] == LEFT && ringer != NOBODY))
	:: else
	fi
}

/* --- writers -------------------------------------------------------------------------------- */

inline next_unit(before)
{
	before = phase;
	phase != before
}

/* Now or in a later unit. */
inline wait_or_not(before)
{
	do
	:: break
	:: next_unit(before)
	od;
	skip /* a jump may not end at a d_step */
}

/* Lock 1, shared. */
inline test_bell(w)
{
	if
	:: bell == NOBODY ->
		test[w] = GRANTED_SHARED;
		shared = shared + !IS(TEST_ENDS_AT_ONCE)
	:: else
	fi
}

/* Lock 2, exclusive. */
inline test_ring(w)
{
	if
	:: ringer == NOBODY -> ringer = w; test[w] = RINGS
	:: else -> test[w] = LEFT
	fi
}

/* Lock 3, shared. A relay's probe may be in the way. */
inline leave_it_to_the_ringer(w)
{
	if
	:: probes == 0 && !IS(MARK_MISSING) -> left++; holds_left[w] = 1
	:: else
	fi
}

/* Without lock 3, since a probe had it, and a third writer rings in the sleep that came since. */
inline excuse(w)
{
	excused[w] = test[w] == LEFT && !holds_left[w] && !IS(MARK_MISSING)
}

#define LEAVES_NOW(w) (IS(LEAVES_AT_ONCE) || (IS(LEAVES_WITHOUT_MARK) && !holds_left[w]))

inline free_bell_and_left(w)
{
	shared = shared - (test[w] == GRANTED_SHARED && !IS(TEST_ENDS_AT_ONCE));
	left = left - holds_left[w];
	holds_left[w] = 0
}

/* Those who left it to this ringer are found by the fallback poll. */
inline roll_back_ring()
{
	ringer = NOBODY;
	for (i : 0 .. WRITERS - 1) {
		if
		:: test[i] == LEFT -> excused[i] = 1
		:: else
		fi
	}
	i = 0
}

inline ring_listeners()
{
	for (i : 0 .. PROCESSES - 1) {
		if
		:: session[i] && listens[i] -> rung[i] = 1
		:: else
		fi
	}
	i = 0
}

inline commit_rows(w)
{
	committed[w] = 1;
	age[w] = 0
}

proctype writer(byte w)
{
	bit before;
	byte i;

end:	do
	:: !committed[w] ->
		wait_or_not(before);
		if
		:: w < WRITERS - SILENT ->
			d_step { test_bell(w) };
			if
			:: d_step { test[w] == NOT_FIRED -> test_ring(w) }
			:: d_step { test[w] == GRANTED_SHARED -> skip }
			fi;
			if
			:: d_step { test[w] == LEFT -> leave_it_to_the_ringer(w) };
				d_step { test_bell(w) };
				if
				:: d_step { test[w] == LEFT && !LEAVES_NOW(w) -> test_ring(w); excuse(w) }
				:: d_step { test[w] != LEFT || LEAVES_NOW(w) -> skip }
				fi
			:: d_step { test[w] != LEFT -> skip }
			fi
		:: else
		fi;
		wait_or_not(before);
		if
		:: /* COMMIT */
			if
			:: d_step { IS(FREED_BEFORE_VISIBLE) -> free_bell_and_left(w) };
				d_step { commit_rows(w) }
			:: d_step { !IS(FREED_BEFORE_VISIBLE) -> commit_rows(w) };
				d_step { free_bell_and_left(w) }
			fi;
			if
			:: d_step { test[w] == RINGS -> ringer = NOBODY };
				d_step { ring_listeners() }
			:: d_step { test[w] != RINGS -> skip }
			fi
		:: /* ROLLBACK */
			d_step { free_bell_and_left(w) };
			if
			:: d_step { test[w] == RINGS -> roll_back_ring() }
			:: d_step { test[w] != RINGS -> skip }
			fi
		fi;
		/* The message is published, so that there is one of each writer at most. */
		d_step { !committed[w] -> test[w] = NOT_FIRED; excused[w] = 0 }
	od
}

/* --- shards --------------------------------------------------------------------------------- */

/* All shards of the process look; only looks that begin from now on count. */
inline ask_shards(p)
{
	for (i : 0 .. SHARDS - 1) {
		if
		:: owner[i] == p ->
			asked[i] = 1;
			looked[i] = 0;
			counts[i] = counts[i] && IS(OLD_LOOK_COUNTS)
		:: else
		fi
	}
	i = 0
}

inline end_sleep(p)
{
	state[p] = LEAVING;
	ask_shards(p)
}

#define POLL(s) (state[owner[s]] == ASLEEP -> (IS(NO_POLL_ASLEEP) -> 9 : FALLBACK) : 1)

inline begin_look(s)
{
	reads[s] = 1;
	counts[s] = HOLDS_LOCK(owner[s]) || IS(OLD_LOOK_COUNTS);
	since[s] = 0;
	asked[s] = 0;
	seen[s] = 0;
	for (i : 0 .. WRITERS - 1) {
		if
		:: shard_of(i) == s && committed[i] -> seen[s] = seen[s] | (1 << i)
		:: else
		fi
	}
	i = 0
}

inline publish_rows(s, p)
{
	for (i : 0 .. WRITERS - 1) {
		if
		:: seen[s] & (1 << i) ->
			committed[i] = 0;
			age[i] = 0;
			if
			:: state[p] == ASLEEP && test[i] != NOT_FIRED && test[i] != LEFT && !IS_BLIND(p) ->
				false_miss[p] = 1
			:: else
			fi
		:: else
		fi
	}
	i = 0
}

inline sleep_if_all_looked(p)
{
	ready = 1;
	for (i : 0 .. SHARDS - 1) {
		if
		:: owner[i] == p && !looked[i] -> ready = 0
		:: else
		fi
	}
	i = 0;
	if
	:: ready -> state[p] = ASLEEP
	:: else
	fi;
	ready = 0
}

inline end_look(s, p)
{
	reads[s] = 0;
	looked[s] = looked[s] | counts[s];
	if
	:: seen[s] -> publish_rows(s, p)
	:: else
	fi;
	if
	:: seen[s] && state[p] == ASLEEP -> suspects[p] = 1; end_sleep(p)
	:: seen[s] && state[p] == LOOKING && !IS(SLEEPS_ON_AFTER_RING) -> end_sleep(p)
	:: else ->
		if
		:: state[p] == LOOKING && looked[s] && IS(ONE_SHARD_IS_ENOUGH) -> state[p] = ASLEEP
		:: state[p] == LOOKING && !IS(ONE_SHARD_IS_ENOUGH) -> sleep_if_all_looked(p)
		:: else
		fi
	fi;
	seen[s] = 0;
	counts[s] = 0
}

#define IS_OWNED(s) (owner[s] != NOBODY && alive[owner[s]])

proctype shard(byte s)
{
	byte i, p;
	bit ready;

end:	do
	:: d_step { IS_OWNED(s) && !reads[s] && (asked[s] || since[s] >= POLL(s)) -> begin_look(s) }
	:: d_step { IS_OWNED(s) && reads[s] -> p = owner[s]; end_look(s, p); p = 0 }
	od
}

/* --- the bell of a process ------------------------------------------------------------------ */

/* A process without shards has no reason to sleep. */
inline begin_trying(p)
{
	tried[p] = 1;
	for (i : 0 .. SHARDS - 1) {
		if
		:: owner[i] == p ->
			state[p] = TRYING;
			again[p] = 0;
			call[p] = (IS(NO_PROBE) -> TRY : PROBE)
		:: else
		fi
	}
	i = 0
}

/* The statement that probes: it holds what it gets to its end. */
inline end_probe(p)
{
	shared--;
	if
	:: ringer == A_PROBE -> ringer = NOBODY
	:: else
	fi;
	call[p] = REFUSED
}

inline grant(p)
{
	call[p] = (IS(LISTENS_LATE) -> LISTEN : NONE);
	if
	:: again[p] -> state[p] = LEAVING
	:: !again[p] && IS(NO_LOOK_AFTER_LOCK) -> state[p] = ASLEEP
	:: else -> state[p] = LOOKING; ask_shards(p)
	fi
}

inline hear_ring(p)
{
	rung[p] = 0;
	if
	:: !IS(RING_DOES_NOT_CLEAR) -> suspects[p] = 0; false_miss[p] = 0
	:: else
	fi;
	if
	:: state[p] == TRYING -> again[p] = !IS(RING_IGNORED_WHILE_TRYING)
	:: state[p] == LOOKING && IS(RING_IGNORED_WHILE_LOOKING) -> skip
	:: HOLDS_LOCK(p) && IS(SLEEPS_ON_AFTER_RING) -> state[p] = LOOKING; ask_shards(p)
	:: else ->
		if
		:: HOLDS_LOCK(p) -> end_sleep(p)
		:: else
		fi
	fi
}

inline lose_session(p)
{
	session[p] = 0;
	listens[p] = 0;
	rung[p] = 0;
	if
	:: bell == p -> bell = NOBODY
	:: else
	fi
}

inline forget_session(p)
{
	connected[p] = 0;
	call[p] = NONE;
	state[p] = AWAKE;
	suspects[p] = 0;
	false_miss[p] = 0;
	ask_shards(p)
}

#define CALLS(p, c) (session[p] && call[p] == c)

proctype process(byte p)
{
	byte i;
	bit before;

end:	do
	:: d_step { alive[p] && !connected[p] && distrust[p] == 0 ->
		connected[p] = 1; session[p] = 1;
		call[p] = (IS(LISTENS_LATE) -> NONE : LISTEN) }
	:: d_step { CALLS(p, LISTEN) -> listens[p] = 1; call[p] = NONE }

	/* To sleep: is somebody still open who tested while the relay slept? Then the lock. */
	:: d_step { alive[p] && CALLS(p, NONE) && state[p] == AWAKE && !tried[p] && !suspects[p] ->
		begin_trying(p) }
#ifdef PROBES_TAKE_TIME
	:: d_step { CALLS(p, PROBE) ->
		if
		:: bell == NOBODY || IS(PROBES_BESIDE_SLEEPER) -> shared++; call[p] = PROBE_RING
		:: else -> call[p] = REFUSED
		fi }
	:: d_step { CALLS(p, PROBE_RING) ->
		if
		:: ringer == NOBODY -> ringer = A_PROBE; call[p] = PROBE_LEFT
		:: else -> end_probe(p)
		fi }
	:: d_step { CALLS(p, PROBE_LEFT) ->
		if
		:: left == 0 && probes == 0 -> probes = 1; call[p] = PROBED
		:: else -> end_probe(p)
		fi }
	:: d_step { CALLS(p, PROBED) -> end_probe(p); probes = 0; call[p] = TRY }
#else
	:: d_step { CALLS(p, PROBE) ->
		call[p] = (bell == NOBODY && ringer == NOBODY && left == 0 -> TRY : REFUSED) }
#endif
	:: d_step { CALLS(p, TRY) ->
		if
		:: bell == NOBODY && shared == 0 -> bell = p; call[p] = GRANTED
		:: else -> call[p] = REFUSED
		fi }
	:: d_step { alive[p] && CALLS(p, GRANTED) -> grant(p) }
	:: d_step { alive[p] && CALLS(p, REFUSED) -> call[p] = NONE; state[p] = AWAKE }

	:: d_step { alive[p] && session[p] && rung[p] -> hear_ring(p) }

	/* Awake again. */
	:: d_step { alive[p] && CALLS(p, NONE) && state[p] == LEAVING -> call[p] = UNLOCK }
	:: d_step { CALLS(p, UNLOCK) ->
		call[p] = NONE;
		state[p] = AWAKE;
		if
		:: bell == p -> bell = NOBODY
		:: else
		fi }

	/* The server loses the session between two statements; the process hears of it later. */
	:: d_step { losses < LOSSES && alive[p] && CALLS(p, NONE) -> losses++; lose_session(p) };
		wait_or_not(before);
		d_step { forget_session(p) }
	/* The process dies; the server hears of it later. */
	:: d_step { crashes < CRASHES && alive[p] && CALLS(p, NONE) -> crashes++; alive[p] = 0 };
		wait_or_not(before);
		d_step { lose_session(p); forget_session(p) }
	od
}

/* The shard of a process that died goes to the other one, which looks at once. */
proctype successor(byte s)
{
	byte i;

end:	do
	:: d_step { owner[s] != NOBODY && !alive[owner[s]] && alive[1 - owner[s]] ->
		owner[s] = 1 - owner[s];
		reads[s] = 0;
		counts[s] = 0;
		seen[s] = 0;
		for (i : 0 .. WRITERS - 1) {
			if
			:: shard_of(i) == s -> age[i] = 0
			:: else
			fi
		}
		i = 0;
		asked[s] = !IS(TAKEN_SHARD_DOES_NOT_LOOK);
		since[s] = 0;
		looked[s] = IS(TAKEN_SHARD_DOES_NOT_LOOK);
		if
		:: state[owner[s]] == ASLEEP && !looked[s] -> state[owner[s]] = LOOKING
		:: else
		fi
	}
	od
}

/* --- a foreigner, and time ------------------------------------------------------------------ */

proctype foreigner()
{
	bit before;

end:	do
	:: d_step { bell == NOBODY && shared == 0 -> bell = PROCESSES };
		wait_or_not(before);
		bell = NOBODY;
		next_unit(before)
	od
}

inline count_time()
{
	for (i : 0 .. WRITERS - 1) {
		check_message(i, owner[shard_of(i)]);
		age[i] = age[i] + committed[i]
	}
	for (i : 0 .. SHARDS - 1) {
		since[i] = (since[i] < FALLBACK -> since[i] + 1 : FALLBACK)
	}
	for (i : 0 .. PROCESSES - 1) {
		tried[i] = 0;
		distrust[i] = (distrust[i] > 0 -> distrust[i] - 1 : 0)
	}
	i = 0
}

/* The grace of a suspicion is over. */
inline judge_suspicion(p)
{
	if
	:: suspects[p] ->
		assert(!false_miss[p]);
		suspects[p] = 0;
		distrust[p] = DISTRUST;
		lose_session(p);
		forget_session(p)
	:: else
	fi
}

proctype time()
{
	byte i;

end:	do
	:: timeout -> d_step {
		count_time();
		judge_suspicion(0);
#if PROCESSES > 1
		judge_suspicion(1);
#endif
		phase = !phase
	}
	od
}

init {
	byte i;

	atomic {
		c_code { now.mutant = atoi(getenv("MUTANT")); };
		for (i : 0 .. WRITERS - 1) {
			test[i] = NOT_FIRED
		}
		for (i : 0 .. PROCESSES - 1) {
			state[i] = AWAKE;
			call[i] = NONE;
			alive[i] = 1
		}
		for (i : 0 .. SHARDS - 1) {
			owner[i] = i % PROCESSES
		}
		for (i : 0 .. WRITERS - 1) { run writer(i) }
		for (i : 0 .. SHARDS - 1) { run shard(i) }
		for (i : 0 .. PROCESSES - 1) { run process(i) }
#if CRASHES
		for (i : 0 .. SHARDS - 1) { run successor(i) }
#endif
#if FOREIGNER
		run foreigner();
#endif
		run time()
	}
}
