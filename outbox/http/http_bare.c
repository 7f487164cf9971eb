#include "http_bare.h"

#include <curl/curl.h>
#include <stdlib.h>
#include "clock.h"
#include "text.h"

enum { WAIT_MS = 1000 };

struct posting {
	CURLM *multi;
	CURL **handles;
	int connections;
	int64_t to_send, to_come;
};

static size_t ignore_body(char *bytes, size_t size, size_t count, void *context)
{
	(void)bytes;
	(void)context;
	return size * count;
}

static CURL *make_handle(
    const char *url, const char *body, size_t length, struct curl_slist *headers)
{
	CURL *handle = curl_easy_init();
	curl_easy_setopt(handle, CURLOPT_URL, url);
	curl_easy_setopt(handle, CURLOPT_PROXY, "");
	curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
	curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, ignore_body);
	curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
	return handle;
}

static void send_by(struct posting *posting, CURL *handle)
{
	if (posting->to_send-- > 0)
		curl_multi_add_handle(posting->multi, handle);
}

static bool take_posted_answers(struct posting *posting, struct err *err)
{
	const CURLMsg *message;
	int left;
	while ((message = curl_multi_info_read(posting->multi, &left))) {
		CURL *handle = message->easy_handle;
		CURLcode code = message->data.result;
		long status = 0;
		curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
		curl_multi_remove_handle(posting->multi, handle);

		if (code || status / 100 != 2)
			return err_set(err, ERR_FATAL, "a bare request failed: %s, status %ld",
			    curl_easy_strerror(code), status);
		posting->to_come--;
		send_by(posting, handle);
	}
	return true;
}

static bool post_all(struct posting *posting, struct err *err)
{
	int running;

	for (int i = 0; i < posting->connections; i++)
		send_by(posting, posting->handles[i]);

	while (posting->to_come > 0) {
		curl_multi_perform(posting->multi, &running);
		if (!take_posted_answers(posting, err))
			return false;
		/*
		 * After the last answer libcurl has nothing to wait for, and the wait would count
		 * in the span.
		 */
		if (posting->to_come > 0)
			curl_multi_poll(posting->multi, NULL, 0, WAIT_MS, NULL);
	}
	return true;
}

bool http_bare_post(const char *url, const char *const *lines, const char *body, size_t length,
    int connections, int64_t count, int64_t *ret_span_us, struct err *err)
{
	struct posting posting = {.multi = curl_multi_init(),
	    .handles = xcalloc((size_t)connections, sizeof(CURL *)),
	    .connections = connections,
	    .to_send = count,
	    .to_come = count};
	struct curl_slist *headers = NULL;
	for (; *lines; lines++)
		headers = curl_slist_append(headers, *lines);
	for (int i = 0; i < connections; i++)
		posting.handles[i] = make_handle(url, body, length, headers);

	int64_t begin = clock_us();
	bool good = post_all(&posting, err);
	*ret_span_us = clock_us() - begin;

	for (int i = 0; i < connections; i++) {
		curl_multi_remove_handle(posting.multi, posting.handles[i]);
		curl_easy_cleanup(posting.handles[i]);
	}
	curl_multi_cleanup(posting.multi);
	curl_slist_free_all(headers);
	free(posting.handles);
	return good;
}
