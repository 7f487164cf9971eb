/* Streams the events of the process as server-sent events, as long as the client reads them. */
#include "api_arguments.h"
#include "api_watch.h"
#include "gate.h"

static void suspend_stream(void *context)
{
	MHD_suspend_connection(((const struct api_call *)context)->connection);
}

static void resume_stream(void *context)
{
	MHD_resume_connection(((const struct api_call *)context)->connection);
}

static void keep_stream(void *context)
{
	gate_stream_goes_on(((const struct api_call *)context)->connection);
}

static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t most)
{
	ssize_t length = event_stream_read(context, bytes, most);

	(void)position;
	return length < 0 ? MHD_CONTENT_READER_END_OF_STREAM : length;
}

static void cut_stream(void *context)
{
	event_stream_end(context);
}

void api_events_begin(struct api_call *call)
{
	struct event_stream_settings settings = {.caller = call->caller->token.name,
	    .last_id = api_request_header(call, "Last-Event-ID"),
	    .is_in_scope = api_may_see_labels,
	    .suspend = suspend_stream,
	    .resume = resume_stream,
	    .progress = keep_stream,
	    .context = call};

	if (!api_arguments_check(call, NULL, 0))
		return;
	call->work = event_stream_open(api_watch_events(api_watch_of(call->api)), &settings);
	if (!call->work)
		return api_refuse(call, 429, "too_many_streams",
		    "a token has %d streams of events at most, and a process %d: close one, or "
		    "share one between the windows of a browser",
		    EVENT_STREAMS_OF_CALLER, EVENT_STREAMS);
	call->status = 200;
	call->streams = true;
}

enum MHD_Result api_events_respond(struct api_call *call, const struct gate_field *fields)
{
	return gate_stream(
	    call->connection, "text/event-stream", read_stream, cut_stream, call->work, fields);
}

void api_events_forget(struct api_call *call)
{
	gate_stream_over(call->connection);
	event_stream_close(call->work);
}
