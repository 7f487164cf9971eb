#pragma once
/* One request of the HTTP interface, shared by api.c and the files of its verbs. */
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include "api.h"
#include "api_auth.h"
#include "api_database.h"
#include "api_problem.h"
#include "api_sender.h"
#include "gate.h"
#include "json_text.h"
#include "metrics.h"
#include "preview_token.h"
#include "route.h"

/* An answer comes within this time after the whole request has arrived. */
enum { API_SEND_MS = 10000, API_ASK_MS = 20000 };

struct api_call;

struct api_verb {
	const char *name; /* in metrics and logs */
	const char *method, *path;
	unsigned roles;      /* one of these is needed: a sum of enum config_role */
	enum lookback_op op; /* of those that send */
	/*
	 * Called with the whole request: answers (api_answer, api_refuse), or calls api_wait and
	 * hands the call over. The thread of the connection calls all three functions.
	 */
	void (*begin)(struct api_call *call);
	void (*finish)(struct api_call *call); /* every part is done: answers */
	void (*forget)(struct api_call *call); /* frees call->work, if there is any */
	int names;        /* names that follow the path; only the last may have slashes */
	const char *tail; /* follows the names; NULL: nothing does */
	bool is_console;  /* a part of the console, which can be off */
	bool is_open;     /* needs no token */
};
/* api_send.c */
void api_send_begin(struct api_call *call);
void api_send_finish(struct api_call *call);
void api_send_forget(struct api_call *call);
/* api_look.c */
void api_show_begin(struct api_call *call);
void api_look_finish(struct api_call *call);
void api_look_forget(struct api_call *call);
/* api_lookback_list.c */
void api_list_begin(struct api_call *call);
void api_list_forget(struct api_call *call);
/* api_operate.c */
void api_lookback_preview_begin(struct api_call *call);
void api_lookback_preview_finish(struct api_call *call);
void api_operate_begin(struct api_call *call);
void api_operate_finish(struct api_call *call);
/*
 * The body of an order, whose size in memory is bounded; NULL: the call was refused and answered.
 */
json_t *api_read_order(struct api_call *call);
struct api_member {
	const char *name;
	/* 's' string, 'b' boolean, 'i' whole number, 'o' any: the caller looks closer */
	char type;
	json_t **ret_value; /* the body's own; left alone if the body has no such member */
};
/*
 * The members of an order; a whole number that is written 64.0 becomes 64 in the body. False: it
 * has another one, or one of another type; refused.
 */
bool api_read_members(
    struct api_call *call, json_t *body, const struct api_member *members, size_t count);

/* api_deliver.c */
void api_deliver_list_begin(struct api_call *call);
void api_deliver_list_forget(struct api_call *call);
/* The sections that run in this process, in the scope of the caller. */
json_t *api_deliver_sections(const struct api_call *call);
void api_deliver_operate_begin(struct api_call *call);
void api_deliver_operate_forget(struct api_call *call);

/* api_messages.c */
void api_messages_begin(struct api_call *call);
void api_messages_forget(struct api_call *call);
/* api_parked.c */
void api_parked_begin(struct api_call *call);
void api_parked_forget(struct api_call *call);
void api_parked_show_begin(struct api_call *call);
void api_parked_show_forget(struct api_call *call);
/* api_parked_request.c */
void api_parked_preview_begin(struct api_call *call);
void api_parked_retry_begin(struct api_call *call);
void api_parked_skip_begin(struct api_call *call);
void api_parked_request_forget(struct api_call *call);
/* api_scheduled.c */
void api_scheduled_begin(struct api_call *call);
void api_scheduled_forget(struct api_call *call);
/* api_jobs.c */
void api_jobs_begin(struct api_call *call);
void api_replays_begin(struct api_call *call);
void api_job_begin(struct api_call *call);
void api_job_cancel_begin(struct api_call *call);
void api_job_resume_begin(struct api_call *call);
/* A call has stored a job in this database: the process takes it at once, if it can. */
void api_wake_jobs(const struct api_call *call, const struct postgres_settings *postgres);
void api_jobs_forget(struct api_call *call);
/* api_replays.c */
void api_replay_preview_begin(struct api_call *call);
void api_replay_begin(struct api_call *call);
void api_replay_forget(struct api_call *call);
/* api_verifications.c */
void api_verification_begin(struct api_call *call);
void api_verification_forget(struct api_call *call);
/* api_publishers.c */
void api_publishers_begin(struct api_call *call);
void api_publisher_begin(struct api_call *call);
/* api_console.c; they answer at once */
void api_console_page_begin(struct api_call *call);
void api_console_redirect_begin(struct api_call *call);
void api_console_login_begin(struct api_call *call);
void api_console_session_begin(struct api_call *call);
void api_console_logout_begin(struct api_call *call);
/* error NULL: the database answered. */
struct status_postgres;
json_t *api_postgres_json(const struct status_postgres *database, const char *error);
/* api_dead_letters.c */
void api_dead_letters_begin(struct api_call *call);
void api_redrive_preview_begin(struct api_call *call);
void api_redrive_begin(struct api_call *call);
void api_dead_letters_forget(struct api_call *call);
/* api_publisher_orders.c */
void api_publisher_pause_begin(struct api_call *call);
void api_publisher_resume_begin(struct api_call *call);
void api_publisher_split_begin(struct api_call *call);
void api_publisher_rebase_begin(struct api_call *call);
void api_publisher_order_forget(struct api_call *call);
/* api_publisher_life.c */
void api_publisher_create_begin(struct api_call *call);
void api_publisher_drop_begin(struct api_call *call);
void api_publisher_life_forget(struct api_call *call);
/* api_partitions.c */
void api_partitions_begin(struct api_call *call);
void api_partition_make_begin(struct api_call *call);
void api_partition_drop_begin(struct api_call *call);
void api_partitions_forget(struct api_call *call);
/* api_preflight.c */
void api_preflight_begin(struct api_call *call);
void api_preflight_forget(struct api_call *call);
/* The last report of the checks. */
struct api_preflight {
	api_checks *check;
	pthread_mutex_t mutex;
	/* guarded by the mutex */
	json_t *report; /* NULL: none yet */
	int64_t until_ms, at_us, took_ms;
	const struct api_call *runs; /* the call that makes the checks now; NULL: none */
};
struct api_preflight *api_preflight(struct api *api);
/* api_actions.c */
void api_audit_begin(struct api_call *call);
void api_audit_forget(struct api_call *call);

/* api_dedup.c */
void api_dedup_begin(struct api_call *call);
/* api_overview.c */
void api_overview_begin(struct api_call *call);
/* api_series.c */
void api_series_begin(struct api_call *call);
/* api_events.c */
void api_events_begin(struct api_call *call);
enum MHD_Result api_events_respond(struct api_call *call, const struct gate_field *fields);
void api_events_forget(struct api_call *call);

struct api_export;
enum { API_FIELDS = 16 };

struct api_call {
	struct api *api;
	struct MHD_Connection *connection;
	const struct api_verb *verb; /* NULL: there is no such path */
	char *rest;                  /* the decoded path behind the verb; may be "" */
	struct api_caller *caller;   /* NULL: the request was refused without one */
	struct session session;      /* of a browser; name NULL: none */
	char request_id[65];
	int64_t begun_us;
	struct text body;
	int64_t held;              /* bytes that the call counts towards all bodies */
	int64_t taken;             /* bytes of the body that came */
	bool is_whole;             /* the request is there */
	bool streams;              /* the answer is a stream of events */
	struct api_export *export; /* the answer is a file; NULL: it is not (api_export.h) */
	bool rests;                /* begin called api_wait; other threads leave it as it is */
	atomic_int left;           /* parts that other threads still work on */
	unsigned status;           /* of the answer; 0: none yet */
	int64_t delay_ms;          /* how long the answer to a wrong token is held back */
	struct text answer;
	const char *media_type;               /* of the answer; NULL: JSON */
	struct gate_field fields[API_FIELDS]; /* of the answer; the last one has no name */
	char *cookie;                         /* that the answer sets; NULL: none */
	void *work;                           /* of the verb */
};

struct api_metrics {
	struct metric *requests, *duration, *messages, *wrong_tokens;
};
const struct api_metrics *api_metrics(const struct api *api);

const struct config *api_config(const struct api *api);
const struct route *api_route(const struct api *api);
struct api_sender *api_sender_of(const struct api *api, const struct kafka_settings *kafka);
struct api_database *api_database_of(
    const struct api *api, const struct postgres_settings *postgres);
struct api_workers *api_workers_of(const struct api *api); /* api_worker.h */
struct api_workers *api_readers_of(const struct api *api); /* of Kafka */
struct api_watch *api_watch_of(const struct api *api);     /* api_watch.h */
const struct api_parts *api_parts_of(const struct api *api);
const char *api_process(const struct api *api); /* the name of the process */
int64_t api_started_us(const struct api *api);  /* since 1970 */
void api_preview_key(struct api *api, unsigned char ret_key[PREVIEW_KEY]);

/* NULL: the section does not run in this process. */
struct deliver *api_deliver(const struct api *api, int place);

/* The caller of a token or of a session; NULL: the token is unknown (api_auth.h). */
struct api_caller *api_caller_of_token(
    const struct api *api, const char *token, char ret_fingerprint[SESSION_HEX + 1]);
struct api_caller *api_caller_of_session(const struct api *api, const struct session *session);
void api_session_key(const struct api *api, unsigned char ret_key[SIGNING_KEY]);

/* A field of the answer; the texts outlive the call. */
void api_add_field(struct api_call *call, const char *name, const char *value);
/* 401 for a wrong token of a login: counted, and held back like another wrong token. */
void api_refuse_login(struct api_call *call);
/* Takes the value over; from the status 400 on, it is a problem document. */
void api_answer(struct api_call *call, unsigned status, json_t *value);
/* Answers with a problem document; code is one of api_problem.c, the text is its detail. */
void api_refuse(struct api_call *call, unsigned status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* 403: the caller has no role for the request, or not for this section, publisher or type. */
void api_refuse_role(struct api_call *call);
void api_refuse_scope(struct api_call *call, const char *what, const char *name);

/* Reasons have 1 to 500 characters. NULL: there is none. False: refused. */
bool api_check_reason(struct api_call *call, const char *reason);
/* The body is one JSON object within the limits. False: refused. */
bool api_check_object(struct api_call *call, const struct json_limits *limits);
/* With 400 bad_value; returns false. */
bool api_refuse_value(struct api_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The call rests until any threads have called api_part_done `parts` times. */
void api_wait(struct api_call *call, int parts);
void api_part_done(struct api_call *call);

/* A header of the request; NULL: not there. */
const char *api_request_header(const struct api_call *call, const char *name);
/* An argument of the URL, decoded; NULL: not there. */
const char *api_argument(const struct api_call *call, const char *name);
