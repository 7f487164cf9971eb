#include "message.h"

#include <string.h>

#include "pg.h"
#include "text.h"

/* Microseconds from 1970-01-01 to 2000-01-01, where a binary timestamptz begins. */
#define POSTGRES_EPOCH_US 946684800000000LL

static bool has_length(const struct copy_field *field, int32_t length)
{
	return field->data && field->length == length;
}

/* The fields come in the order of MESSAGE_FIELDS, with the widths of the binary send functions. */
static bool from_fields(
    const struct copy_field *fields, struct message *ret_message, struct err *err)
{
	if (!has_length(&fields[0], 8) || !has_length(&fields[1], 8) ||
	    !has_length(&fields[2], 16) || !fields[3].data ||
	    (fields[7].data && fields[7].length != 4) || (fields[8].data && fields[8].length != 8))
		return err_set(err, ERR_FATAL,
		    "a row of the message table has columns of unexpected types; is the schema "
		    "the one that `outbox-relay migrate up` made?");
	/* PostgreSQL stores no text with a NUL: the server is not PostgreSQL, or is hostile. */
	if (memchr(fields[3].data, '\0', (size_t)fields[3].length))
		return err_set(err, ERR_FATAL, "the topic of row %lld has a NUL in it",
		    (long long)copy_int64(fields[0].data));

	ret_message->id = copy_int64(fields[0].data);
	ret_message->created_us = copy_int64(fields[1].data) + POSTGRES_EPOCH_US;
	ret_message->event_id = fields[2].data;
	ret_message->topic = fields[3].data;
	ret_message->topic_length = fields[3].length;

	/* Key and payload are each in one of two columns: bytes if not null, or else text. */
	const struct copy_field *key = &fields[fields[9].data ? 9 : 4];
	const struct copy_field *payload = &fields[fields[10].data ? 10 : 5];
	ret_message->key = key->data;
	ret_message->key_length = key->data ? key->length : 0;
	ret_message->payload = payload->data;
	ret_message->payload_length = payload->data ? payload->length : 0;
	ret_message->headers = fields[6].data;
	ret_message->headers_length = fields[6].data ? fields[6].length : 0;
	ret_message->partition = fields[7].data ? copy_int32(fields[7].data) : -1;
	ret_message->scheduled = fields[8].data != NULL;

	/* A deliver_at before created_at does not count. */
	ret_message->due_us = ret_message->created_us;
	if (ret_message->scheduled &&
	    copy_int64(fields[8].data) + POSTGRES_EPOCH_US > ret_message->created_us)
		ret_message->due_us = copy_int64(fields[8].data) + POSTGRES_EPOCH_US;
	return true;
}

static bool from_copied_fields(struct copy_field *fields, const char *usual_topic,
    struct message *ret_message, struct err *err)
{
	if (!fields[3].data && usual_topic)
		fields[3] = (struct copy_field){usual_topic, (int32_t)strlen(usual_topic)};
	return from_fields(fields, ret_message, err);
}

bool message_from_copy(char *row, int length, bool first, const char *usual_topic,
    struct message *ret_message, enum copy_kind *ret_kind, struct err *err)
{
	struct copy_field fields[MESSAGE_FIELDS];
	*ret_message = (struct message){.block = row, .bytes = length};
	if (copy_parse(row, length, first, fields, MESSAGE_FIELDS, ret_kind, err) &&
	    (*ret_kind == COPY_TRAILER ||
		from_copied_fields(fields, usual_topic, ret_message, err))) {
		if (*ret_kind == COPY_TRAILER)
			message_release(ret_message);
		return true;
	}
	message_release(ret_message);
	return false;
}

bool message_from_result(const struct pg_result *result, int row, int column,
    struct message *ret_message, struct err *err)
{
	struct copy_field fields[MESSAGE_FIELDS];
	size_t bytes = 0;
	for (int i = 0; i < MESSAGE_FIELDS; i++)
		bytes += (size_t)pg_length(result, row, column + i);

	char *block = xmalloc(bytes);
	char *at = block;
	for (int i = 0; i < MESSAGE_FIELDS; i++) {
		int length = pg_length(result, row, column + i);
		bool null = pg_is_null(result, row, column + i);
		/* A null has no data, while an empty text has data of length 0. */
		fields[i] = (struct copy_field){null ? NULL : at, length};
		memcpy(at, pg_value(result, row, column + i), (size_t)length);
		at += length;
	}

	*ret_message = (struct message){.block = block, .bytes = (int32_t)bytes};
	if (from_fields(fields, ret_message, err))
		return true;
	message_release(ret_message);
	return false;
}

void message_release(struct message *message)
{
	pg_free_row(message->block);
	message->block = NULL;
}
