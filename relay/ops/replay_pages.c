#include "replay_pages.h"

#include <stdlib.h>
#include "text.h"

enum { FIRST_ROWS = 500, MOST_ROWS = 10000 };

void replay_pages_init(struct replay_pages *pages, struct pg *pg, const struct replay *replay)
{
	*pages = (struct replay_pages){
	    .pg = pg, .replay = replay, .after = replay->last_id, .rows = FIRST_ROWS};
}

static void drop_held_rows(struct replay_pages *pages)
{
	while (pages->held_count > 0)
		message_release(&pages->held[--pages->held_count]);
}

void replay_pages_finish(struct replay_pages *pages)
{
	drop_held_rows(pages);
	free(pages->held);
	*pages = (struct replay_pages){0};
}

static int64_t page_room(const struct replay_pages *pages)
{
	return pages->replay->publisher->memory / 2;
}

static bool begin_page(struct replay_pages *pages, struct err *err)
{
	owned_text char *script = replay_page_script(pages->replay, pages->after, pages->rows);

	pages->count = pages->bytes = 0;
	pages->copying = pages->first = true;
	pages->cut = false;
	return pg_send_copy(pages->pg, script, err);
}

/* The next page is as long as rows of this size allow. */
static void end_page(struct replay_pages *pages)
{
	int64_t rows;

	pages->copying = false;
	if (pages->count == 0)
		return;
	rows = page_room(pages) / (pages->bytes / pages->count + 1);
	pages->rows = rows < 1 ? 1 : rows > MOST_ROWS ? MOST_ROWS : rows;
}

static void hold_row(struct replay_pages *pages, const struct message *message)
{
	if (pages->held_count == pages->held_room) {
		pages->held_room = pages->held_room ? pages->held_room * 2 : 4;
		pages->held = xrealloc(pages->held, (size_t)pages->held_room * sizeof *pages->held);
	}
	pages->held[pages->held_count++] = *message;
}

/*
 * The held rows are all rows with their id. The next page begins behind this id, so an id of which
 * only some rows were read must not come here.
 */
static void pass_held_rows(struct replay_pages *pages, struct replay_send *send)
{
	for (int i = 0; i < pages->held_count; i++) {
		pages->after = pages->held[i].id;
		pages->count++;
		pages->bytes += pages->held[i].bytes;
		replay_send_add(send, &pages->held[i]);
	}
	pages->held_count = 0;
}

static bool take_page_row(
    struct replay_pages *pages, struct replay_send *send, char *row, int length, struct err *err)
{
	struct message message;
	enum copy_kind kind;

	if (!message_from_copy(row, length, pages->first, NULL, &message, &kind, err))
		return false;
	pages->first = false;
	if (kind != COPY_ROW)
		return true;

	if (pages->held_count > 0 && pages->held[0].id != message.id)
		pass_held_rows(pages, send);
	hold_row(pages, &message);

	/* held rows are not in `bytes`: a page is cut behind one id at least, so the next page does
	 * not begin with the same row. Rows that come before the server cancels are taken too; the
	 * request is sent once. */
	if (pages->cut || pages->bytes <= page_room(pages))
		return true;
	pages->cut = pages->ever_cut = true;
	return pg_cancel(pages->pg, err);
}

/* A late request to cancel may hit the page after the one that was too large. */
static bool was_cut(const struct replay_pages *pages)
{
	return pages->ever_cut && pg_state(pages->pg) == PG_IDLE &&
	       text_equal(pg_sqlstate(pages->pg), "57014");
}

static bool take_page(struct replay_pages *pages, struct replay_send *send, struct err *err)
{
	enum pg_copy what;
	char *row;
	int length;

	for (;;) {
		if (!pg_copy_next(pages->pg, &what, &row, &length, err)) {
			if (!was_cut(pages))
				return false;
			/* the next page reads them again, with those that share their id */
			drop_held_rows(pages);
			end_page(pages);
			return true;
		}
		if (what == PG_COPY_WAIT)
			return true;
		if (what == PG_COPY_END) {
			/* `with ties`: the page has all rows of its last id */
			pass_held_rows(pages, send);
			/* a page that was cut, or is full, may have further rows behind it */
			pages->finished = !pages->cut && pages->count < pages->rows;
			end_page(pages);
			return true;
		}
		if (!take_page_row(pages, send, row, length, err))
			return false;
	}
}

bool replay_pages_step(struct replay_pages *pages, struct replay_send *send, struct err *err)
{
	struct replay_send_state state = replay_send_state(send);

	/* half of the memory is for the page that comes, half for the rows that wait */
	if (!pages->copying && !pages->finished && state.waiting <= pages->rows / 2 &&
	    state.bytes <= page_room(pages) && !begin_page(pages, err))
		return false;
	if (!pages->copying)
		return true;
	return pg_step(pages->pg, err) && take_page(pages, send, err);
}
