#pragma once
/* HTTP/2 for the server of nasty_server.h: frames as they are, nothing is checked. */
#include "nasty_server.h"

enum { FRAME_DATA, FRAME_HEADERS, FRAME_RST = 3, FRAME_SETTINGS, FRAME_PING = 6, FRAME_GOAWAY };
enum { FLAG_END_STREAM = 1, FLAG_ACK = 1, FLAG_END_HEADERS = 4 };

/* Of a request that has come in whole. False ends the connection. */
typedef bool http2_answer(struct peer *peer, uint32_t stream);

/* A conversation: greets, and has each request answered, until the peer is gone. */
void http2_speak(struct peer *peer, http2_answer *answer);

bool http2_frame(
    struct peer *peer, int type, int flags, uint32_t stream, const void *bytes, size_t length);
/* A frame of headers, or of trailers: names and values of up to 126 bytes in turn, then NULL. */
bool http2_headers(struct peer *peer, int flags, uint32_t stream, const char *const *pairs);
