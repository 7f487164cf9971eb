#include "nasty_http2.h"

#include <string.h>

bool http2_frame(
    struct peer *peer, int type, int flags, uint32_t stream, const void *bytes, size_t length)
{
	const unsigned char head[9] = {0, (unsigned char)(length >> 8), (unsigned char)length,
	    (unsigned char)type, (unsigned char)flags, (unsigned char)(stream >> 24),
	    (unsigned char)(stream >> 16), (unsigned char)(stream >> 8), (unsigned char)stream};

	return server_write(peer, head, sizeof head) && server_write(peer, bytes, length);
}

static size_t add_text(char *at, const char *text)
{
	size_t length = strlen(text);

	*at = (char)length;
	memcpy(at + 1, text, length);
	return length + 1;
}

/* HPACK (RFC 7541): each as a literal. */
bool http2_headers(struct peer *peer, int flags, uint32_t stream, const char *const *pairs)
{
	char block[4096];
	size_t length = 0;

	for (; *pairs; pairs += 2) {
		block[length++] = 0;
		length += add_text(block + length, pairs[0]);
		length += add_text(block + length, pairs[1]);
	}
	return http2_frame(peer, FRAME_HEADERS, flags | FLAG_END_HEADERS, stream, block, length);
}

static bool serve_frame(struct peer *peer, http2_answer *answer)
{
	unsigned char head[9], bytes[20000];
	size_t length;
	uint32_t stream;

	if (!server_read_exactly(peer, head, sizeof head))
		return false;
	length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
	stream =
	    (uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8];
	if (length > sizeof bytes || !server_read_exactly(peer, bytes, length))
		return false;
	if (head[3] == FRAME_SETTINGS && !(head[4] & FLAG_ACK))
		return http2_frame(peer, FRAME_SETTINGS, FLAG_ACK, 0, "", 0);
	if (head[3] > FRAME_HEADERS || !(head[4] & FLAG_END_STREAM))
		return true;
	atomic_fetch_add(&peer->server->requests, 1);
	return answer(peer, stream);
}

void http2_speak(struct peer *peer, http2_answer *answer)
{
	char preface[24];

	if (!server_read_exactly(peer, preface, sizeof preface) ||
	    memcmp(preface, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", sizeof preface) != 0 ||
	    !http2_frame(peer, FRAME_SETTINGS, 0, 0, "", 0))
		return;
	while (serve_frame(peer, answer))
		;
}
