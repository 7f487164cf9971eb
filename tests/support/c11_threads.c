/*
 * ThreadSanitizer knows pthreads, not C11 threads: a thread that librdkafka makes by thrd_create
 * has no state in it and the first allocation there crashes. In a TSan build these take the place
 * of libc's, by way of pthreads; glibc's types are the same underneath.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

#define EXPORT __attribute__((visibility("default")))

struct start {
	thrd_start_t run;
	void *argument;
};

static int result_of(int error)
{
	switch (error) {
	case 0:
		return thrd_success;
	case ENOMEM:
		return thrd_nomem;
	case ETIMEDOUT:
		return thrd_timedout;
	case EBUSY:
		return thrd_busy;
	default:
		return thrd_error;
	}
}

static void *run(void *argument)
{
	struct start start = *(struct start *)argument;

	free(argument);
	return (void *)(intptr_t)start.run(start.argument);
}

EXPORT int thrd_create(thrd_t *ret_thread, thrd_start_t function, void *argument)
{
	struct start *start = malloc(sizeof *start);
	int error;

	if (!start)
		return thrd_nomem;
	*start = (struct start){function, argument};
	error = pthread_create(ret_thread, NULL, run, start);
	if (error)
		free(start);
	return result_of(error);
}

EXPORT int thrd_join(thrd_t thread, int *ret_result)
{
	void *result;
	int error = pthread_join(thread, &result);

	if (!error && ret_result)
		*ret_result = (int)(intptr_t)result;
	return result_of(error);
}

EXPORT int thrd_detach(thrd_t thread)
{
	return result_of(pthread_detach(thread));
}

EXPORT _Noreturn void thrd_exit(int result)
{
	pthread_exit((void *)(intptr_t)result);
}

EXPORT int mtx_init(mtx_t *mutex, int type)
{
	pthread_mutexattr_t attributes;
	int error;

	pthread_mutexattr_init(&attributes);
	if (type & mtx_recursive)
		pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	error = pthread_mutex_init((pthread_mutex_t *)mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
	return result_of(error);
}

EXPORT int mtx_lock(mtx_t *mutex)
{
	return result_of(pthread_mutex_lock((pthread_mutex_t *)mutex));
}

EXPORT int mtx_trylock(mtx_t *mutex)
{
	return result_of(pthread_mutex_trylock((pthread_mutex_t *)mutex));
}

EXPORT int mtx_unlock(mtx_t *mutex)
{
	return result_of(pthread_mutex_unlock((pthread_mutex_t *)mutex));
}

EXPORT void mtx_destroy(mtx_t *mutex)
{
	pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

EXPORT int cnd_init(cnd_t *condition)
{
	return result_of(pthread_cond_init((pthread_cond_t *)condition, NULL));
}

EXPORT int cnd_signal(cnd_t *condition)
{
	return result_of(pthread_cond_signal((pthread_cond_t *)condition));
}

EXPORT int cnd_broadcast(cnd_t *condition)
{
	return result_of(pthread_cond_broadcast((pthread_cond_t *)condition));
}

EXPORT int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
	return result_of(pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex));
}

EXPORT int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until)
{
	return result_of(
	    pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until));
}

EXPORT void cnd_destroy(cnd_t *condition)
{
	pthread_cond_destroy((pthread_cond_t *)condition);
}
