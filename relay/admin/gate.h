#pragma once
/*
 * The gate of a listener, in front of libmicrohttpd. Internal to relay/admin.
 *
 * One thread accepts connections and looks at the head of the request without taking it from the
 * socket. A head that is not strictly HTTP (request_head.h), or that names another host, is refused
 * and its connection closed. A good head is handed over with its connection to one of several
 * libmicrohttpd servers, each with a thread of its own, which reads the same bytes and serves the
 * request. A connection carries one request, so that no request passes the gate unchecked.
 *
 * With TLS the socket of a connection is one end of a pair, and tls_front.h has the other end.
 *
 * The gate always accepts. If the table is full, or one address has half of it, the connection that
 * has been idle for the longest time is closed, never one whose request is being answered. So
 * clients that connect and send nothing, send slowly, or do not read displace only each other. Each
 * step of a connection (enum guest_state of gate.c) has a time limit.
 */
#include <microhttpd.h>
#include "config.h"
#include "listener.h"

struct gate;

extern const struct metric_table gate_metric_table;

struct gate_settings {
	const char *section;                   /* "admin" or "api" */
	const char *listen;                    /* as configured: its host is one of the names */
	const struct config_list *hosts;       /* further names; NULL: none */
	const char *tls_certificate, *tls_key; /* paths; "": without TLS (tls_front.h) */
	int servers; /* threads that answer; a request gets the thread with the fewest requests */
	int connections;    /* at most; fewer if the process may not open as many files */
	int64_t head_ms;    /* from the connection to a whole head */
	int64_t arrival_ms; /* from the connection to a whole request */
	int64_t answer_ms;  /* for the client to read the answer */
	int64_t discards;   /* maximum bytes behind a refused head that are read and dropped */
	bool takes_bodies;  /* else a request with a body is refused */
	bool says_problems; /* refusals are problem documents (api_problem.h); else text */
	/* libmicrohttpd's callbacks, each by the thread of its server, and their context */
	MHD_AccessHandlerCallback on_request;
	MHD_RequestCompletedCallback on_completed; /* NULL: none */
	void *context;
};

/* Takes the listener over, also when it fails. The settings' texts outlive the gate. */
struct gate *gate_start(
    struct listener *listener, const struct gate_settings *settings, struct err *err);
/* Takes no new connection from now on, and delays no answer. */
void gate_quiesce(struct gate *gate);
/* No connection may be suspended. NULL is fine. */
void gate_stop(struct gate *gate);

/* For `on_request`: */

/*
 * The head was taken, and the body has its time to arrive. Until then, and from gate_whole to the
 * answer, the connection is safe.
 */
void gate_await_body(struct MHD_Connection *connection);
void gate_whole(struct MHD_Connection *connection);

struct gate_field {
	const char *name, *value;
};
/* Answers, with Cache-Control: no-store if no field has another one, and ends the connection.
 * fields: up to one without a name; NULL: none. */
enum MHD_Result gate_answer(struct MHD_Connection *connection, unsigned status, const char *type,
    const struct text *body, const struct gate_field *fields);

/*
 * Answers with a stream: `read` is libmicrohttpd's MHD_ContentReaderCallback. `cut` is called, once
 * at most and by any thread, when the gate ends the connection, which may be suspended.
 */
enum MHD_Result gate_stream(struct MHD_Connection *connection, const char *type,
    MHD_ContentReaderCallback read, void (*cut)(void *context), void *context,
    const struct gate_field *fields);
/*
 * For `read`, when it has bytes: the client has read what came before, and has answer_ms again. At
 * the latest when so much time has passed, there have to be further bytes.
 */
void gate_stream_goes_on(struct MHD_Connection *connection);
/* The stream is completed: `cut` is not called any longer. */
void gate_stream_over(struct MHD_Connection *connection);

/* The client's address has shown a wrong token: how long its answer is to be delayed. */
int64_t gate_wrong_token(struct MHD_Connection *connection);
/* The connection was suspended; `then` is called after so long, and is to resume it. */
void gate_delay(
    struct MHD_Connection *connection, int64_t ms, void (*then)(void *context), void *context);
