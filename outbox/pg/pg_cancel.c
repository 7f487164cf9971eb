#include "pg_private.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "text.h"

/* Maximum number of cancel threads: a server that does not answer may hold each for minutes. */
enum { MOST_ASKING = 32 };

struct pg_cancel {
	PGcancel *request; /* the thread owns it */
	_Atomic(int) holders;
	_Atomic(int) outcome;
};

static _Atomic(int) asking;

void pg_cancel_release(struct pg_cancel *cancel)
{
	if (cancel && atomic_fetch_sub(&cancel->holders, 1) == 1)
		free(cancel);
}

static void *ask_server(void *context)
{
	struct pg_cancel *cancel = context;
	char message[256];
	bool taken = PQcancel(cancel->request, message, sizeof message);

	PQfreeCancel(cancel->request);
	atomic_store(&cancel->outcome, taken ? PG_CANCEL_TAKEN : PG_CANCEL_FAILED);
	pg_cancel_release(cancel);
	atomic_fetch_sub(&asking, 1);
	return NULL;
}

/* The thread is detached: nothing waits for it, and it ends with the process. */
static bool start_cancel_thread(struct pg_cancel *cancel)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	bool started = pthread_create(&thread, &attributes, ask_server, cancel) == 0;
	pthread_attr_destroy(&attributes);
	return started;
}

struct pg_cancel *pg_cancel_begin(struct pg *pg)
{
	PGcancel *request = PQgetCancel(pg->connection);

	if (!request)
		return NULL;

	struct pg_cancel *cancel = xcalloc(1, sizeof *cancel);
	cancel->request = request;
	atomic_init(&cancel->holders, 2);
	atomic_init(&cancel->outcome, PG_CANCEL_ASKING);
	/*
	 * Without a thread no cancel is sent; the link tries again after its limit (ask_for_end).
	 */
	if (atomic_fetch_add(&asking, 1) < MOST_ASKING && start_cancel_thread(cancel))
		return cancel;
	atomic_fetch_sub(&asking, 1);
	PQfreeCancel(request);
	free(cancel);
	return NULL;
}

enum pg_cancel_outcome pg_cancel_outcome(const struct pg_cancel *cancel)
{
	return (enum pg_cancel_outcome)atomic_load(&((struct pg_cancel *)cancel)->outcome);
}
