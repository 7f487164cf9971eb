/*
 * gRPC: HTTP/2 (RFC 9113) and the messages of docs/reference/lookback.proto, as far as the relay's
 * client goes: requests without padding, whose headers are in one frame and are ignored. The
 * answers are far below any window of flow control.
 */
#include "bench_business.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DATA, HEADERS, RST_STREAM = 3, SETTINGS, PING = 6, WINDOW_UPDATE = 8 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };
enum { FRAME_HEAD = 9, MESSAGE_HEAD = 5, COMMIT = 2, ROLLBACK = 3 };

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum { PREFACE = sizeof preface - 1 };

struct bench_call {
	struct bench_call *next;
	uint32_t stream;
	struct text body;
};

static uint32_t read_uint32(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

static void add_uint32(struct text *out, uint32_t number)
{
	const char bytes[] = {
	    (char)(number >> 24), (char)(number >> 16), (char)(number >> 8), (char)number};

	text_append(out, bytes, sizeof bytes);
}

static void add_http2_frame(
    struct text *out, int type, int flags, uint32_t stream, const void *bytes, size_t length)
{
	const char head[] = {
	    (char)(length >> 16), (char)(length >> 8), (char)length, (char)type, (char)flags};

	text_append(out, head, sizeof head);
	add_uint32(out, stream);
	text_append(out, bytes, length);
}

/* --- messages -------------------------------------------------------------------------------- */

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret_value)
{
	*ret_value = 0;
	for (int shift = 0; *at < end && shift < 64; shift += 7) {
		uint8_t byte = *(*at)++;

		*ret_value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

/* The next field that has a length; skips fields that are numbers. */
static bool read_field(const uint8_t **at, const uint8_t *end, int *ret_field,
    const uint8_t **ret_bytes, size_t *ret_length)
{
	uint64_t tag, value;

	while (read_varint(at, end, &tag) && read_varint(at, end, &value)) {
		if ((tag & 7) == 0)
			continue;
		if ((tag & 7) != 2 || value > (uint64_t)(end - *at))
			return false;
		*ret_field = (int)(tag >> 3);
		*ret_bytes = *at;
		*ret_length = (size_t)value;
		*at += value;
		return true;
	}
	return false;
}

/* Writes the CheckAnswer for a CheckId: lengths below 128 are one byte. */
static void add_answer(struct text *message, const uint8_t *id, size_t length, int decision)
{
	const uint8_t *at = id, *bytes;
	size_t count;
	int field;

	/* 100: a length in the answer, this one and four more, must fit 7 bits */
	if (!read_field(&at, id + length, &field, &bytes, &count) || field != 1 || count > 100)
		return;

	const char head[] = {1 << 3 | 2, (char)(count + 4), 1 << 3 | 2, (char)count};
	const char tail[] = {2 << 3, (char)decision};

	text_append(message, head, sizeof head);
	text_append(message, (const char *)bytes, count);
	text_append(message, tail, sizeof tail);
}

static void answer_grpc_call(struct bench_peer *peer, const struct bench_call *call)
{
	static const char headers[] = "\x88\x0f\x10\x10" /* :status 200, content-type */
				      "application/grpc";
	static const char trailers[] = "\x00\x0bgrpc-status\x01"
				       "0";
	const uint8_t *at = (const uint8_t *)call->body.data + MESSAGE_HEAD;
	const uint8_t *end = (const uint8_t *)call->body.data + call->body.length, *bytes;
	struct text message = {0}, body = {0}, out = {0};
	size_t length;
	int field;

	while (at < end && read_field(&at, end, &field, &bytes, &length))
		if (field == 2)
			add_answer(
			    &message, bytes, length, bench_peer_commits(peer) ? COMMIT : ROLLBACK);
	text_append(&body, "", 1);
	add_uint32(&body, (uint32_t)message.length);
	text_append(&body, text_string(&message), message.length);
	add_http2_frame(&out, HEADERS, END_HEADERS, call->stream, headers, sizeof headers - 1);
	add_http2_frame(&out, DATA, 0, call->stream, body.data, body.length);
	add_http2_frame(
	    &out, HEADERS, END_HEADERS | END_STREAM, call->stream, trailers, sizeof trailers - 1);
	text_finish(&message);
	text_finish(&body);
	bench_peer_answer(peer, &out);
}

/* --- frames ---------------------------------------------------------------------------------- */

static struct bench_call *call_of(struct bench_peer *peer, uint32_t stream)
{
	struct bench_call *call = peer->calls;

	while (call && call->stream != stream)
		call = call->next;
	if (call)
		return call;
	call = xcalloc(1, sizeof *call);
	call->next = peer->calls;
	call->stream = stream;
	return peer->calls = call;
}

static void end_call(struct bench_peer *peer, struct bench_call *call)
{
	struct bench_call **at = &peer->calls;

	while (*at != call)
		at = &(*at)->next;
	*at = call->next;
	text_finish(&call->body);
	free(call);
}

static bool acknowledge_frame(struct bench_peer *peer, int type, const void *bytes, size_t length)
{
	struct text out = {0};
	bool good;

	add_http2_frame(&out, type, ACK, 0, bytes, length);
	good = bench_peer_write(peer, &out);
	text_finish(&out);
	return good;
}

static bool read_frame(
    struct bench_peer *peer, int type, int flags, uint32_t stream, const void *bytes, size_t length)
{
	struct bench_call *call;

	if (type == SETTINGS)
		return flags & ACK || acknowledge_frame(peer, SETTINGS, "", 0);
	if (type == PING)
		return flags & ACK || acknowledge_frame(peer, PING, bytes, length);
	if (type == RST_STREAM)
		end_call(peer, call_of(peer, stream));

	/* frames of flow control and of later versions need no answer */
	if (type > HEADERS)
		return true;
	call = call_of(peer, stream);
	if (type == DATA)
		text_append(&call->body, bytes, length);
	if (!(flags & END_STREAM))
		return true;
	if (call->body.length < MESSAGE_HEAD)
		return false;
	answer_grpc_call(peer, call);
	end_call(peer, call);
	return true;
}

static bool read_frames(struct bench_peer *peer)
{
	const uint8_t *bytes = (const uint8_t *)peer->in.data;
	size_t length = peer->in.length, done = 0;

	/* the preface comes once; no frame begins like it */
	if (length >= PREFACE && memcmp(bytes, preface, PREFACE) == 0)
		done = PREFACE;
	else if (length < PREFACE && memcmp(bytes, preface, length) == 0)
		return true;
	while (length - done >= FRAME_HEAD) {
		const uint8_t *frame = bytes + done;
		size_t count = read_uint32(frame) >> 8;

		/* the rest of the frame comes with the next bytes */
		if (length - done < FRAME_HEAD + count)
			break;
		if (!read_frame(peer, frame[3], frame[4], read_uint32(frame + 5),
			frame + FRAME_HEAD, count))
			return false;
		done += FRAME_HEAD + count;
	}
	bench_peer_read(peer, done);
	return true;
}

/* Sets the connection's window once: 2 GiB of questions. */
static bool greet_grpc_peer(struct bench_peer *peer)
{
	struct text window = {0}, out = {0};
	bool good;

	add_uint32(&window, 0x7fff0000);
	add_http2_frame(&out, SETTINGS, 0, 0, "", 0);
	add_http2_frame(&out, WINDOW_UPDATE, 0, 0, window.data, window.length);
	good = bench_peer_write(peer, &out);
	text_finish(&window);
	text_finish(&out);
	return good;
}

static void end_all_calls(struct bench_peer *peer)
{
	while (peer->calls)
		end_call(peer, peer->calls);
}

const struct bench_dialect bench_business_grpc = {
    .greet = greet_grpc_peer, .read = read_frames, .finish = end_all_calls};
