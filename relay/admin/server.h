#pragma once
/*
 * The HTTP server of both listeners. Internal to relay/admin.
 *
 * One thread does all input and output and never waits for anybody; workers run the callbacks that
 * may take their time. A request is read strictly (request_head.h): 400, and the connection is
 * closed.
 *
 * The server always accepts. A full table, or an address that has half of it, costs the connection
 * that has been idle for the longest time its place, never one whose request is being worked on. So
 * clients that connect and send nothing, or send slowly, displace each other and nobody else.
 */
#include "config.h"
#include "request_head.h"

struct server;
struct server_request; /* a connection's present request; valid until its `end` */

struct server_callbacks {
	/*
	 * The head is there: returns what the other callbacks get. May answer, which closes the
	 * connection if there is a body. The server's thread; must not block.
	 */
	void *(*head)(
	    void *context, struct server_request *request, const struct request_head *head);
	/* A part of the body. May answer. The server's thread; must not block. */
	void (*body)(void *call, const char *bytes, size_t length);
	/*
	 * The request is whole, and then once for each server_work. A worker's thread. The request
	 * is to be answered in here, or later by any thread.
	 */
	void (*work)(void *call);
	/* Once for each head; was_sent: the answer went out. The server's thread. */
	void (*end)(void *call, bool was_sent);
};

struct server_settings {
	const char *section;             /* "admin" or "api" */
	const char *listen;              /* as configured: its host is one of the names */
	const struct config_list *hosts; /* further names */
	int workers;
	int connections; /* at most; fewer if the process may not open as many files */
	int64_t head_ms, request_ms, idle_ms, answer_ms;
	int64_t discards; /* bytes of a refused request that are read and dropped */
	bool says_json;   /* refusals are {"code", "error"}; else text */
	struct server_callbacks callbacks;
	void *context; /* of `head` */
};

struct server_answer {
	unsigned status;
	const char *type;
	const char *fields; /* further ones, each ended by CR LF; NULL: none */
	const struct text *body;
	int64_t delay_ms; /* it goes out so much later */
};

/* fd: a listening socket, which the server takes over, also when it fails. */
struct server *server_start(int fd, const struct server_settings *settings, struct err *err);
/* Takes no new connection from now on. */
void server_quiesce(struct server *server);
/* Every call is answered, or its request is cut off. NULL is fine. */
void server_stop(struct server *server);

/* Exactly once for each request; copies the answer. Any thread. */
void server_answer(struct server_request *request, const struct server_answer *answer);
/* `work` is to be called (again). Any thread. */
void server_work(struct server_request *request);
/* Its work takes a while: heavy requests never have all workers. Only in `head`. */
void server_set_heavy(struct server_request *request);
/*
 * The client's address has presented a wrong token: how many milliseconds its answer is to be
 * delayed. Only in `head`.
 */
int64_t server_note_wrong_token(struct server_request *request);
