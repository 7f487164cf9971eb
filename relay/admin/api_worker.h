#pragma once
/*
 * A pool of threads for calls that ask a database more than one question, or that use the blocking
 * functions of relay/ops. Each thread keeps a session to each database between calls. Internal to
 * relay/admin.
 *
 * A call has API_ASK_MS from its arrival, with the time that it waits for a thread; then its
 * running statement is cancelled. The time of the next page of a file (api_export.h) begins with a
 * thread.
 */
#include "api_private.h"

struct api_worker;

/*
 * The configuration outlives the pool. Sessions begin with the first call that needs them. NULL: no
 * thread or no timer (ERR_FATAL).
 */
struct api_workers *api_workers_start(
    const struct config *config, int threads, int most_waiting, struct err *err);
/*
 * Cancels the running statements, and refuses the calls that wait. Calls that come later are
 * refused as well. Frees nothing: api_workers_destroy does, when no call can come.
 */
void api_workers_end(struct api_workers *workers);
void api_workers_destroy(struct api_workers *workers); /* after api_workers_end; NULL is fine */

/*
 * To be called last in `begin`: the call rests until a thread of the pool has run `run`, which
 * answers or refuses it. If too many calls wait, the call is refused (503 busy), unless it reads
 * the next page of a file.
 */
void api_worker_run(
    struct api_call *call, void (*run)(struct api_call *call, struct api_worker *worker));

/* While off, the thread's blocking calls are not ended by the call's limit. `run` sets it back. */
void api_worker_interrupts(struct api_worker *worker, bool on);

/* --- for `run` ------------------------------------------------------------------------------- */

/*
 * To be called last in `run`: a thread of this other pool runs `run` for the call, which the caller
 * may no longer touch. False: too many calls wait there; the caller still has the call.
 */
bool api_worker_pass(struct api_call *call, struct api_workers *workers,
    void (*run)(struct api_call *call, struct api_worker *worker)) MUST_CHECK;

/*
 * Calls `read` with a session of the database. A session that was kept may be lost: then `read` is
 * called a second time, with a new session. So it must change nothing, and set its results only
 * when it returns true.
 */
bool api_worker_query(struct api_worker *worker, const struct postgres_settings *postgres,
    bool (*read)(struct pg *pg, void *context, struct err *err), void *context,
    struct err *err) MUST_CHECK;
/*
 * Calls `change` once with the session that api_worker_query has just used. A lost session is an
 * error, since the change may have been made.
 */
bool api_worker_change(struct api_worker *worker, const struct postgres_settings *postgres,
    bool (*change)(struct pg *pg, void *context, struct err *err), void *context,
    struct err *err) MUST_CHECK;
