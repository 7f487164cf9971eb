#include "balancer.h"

#include <stdlib.h>

/* SplitMix64. */
static uint64_t draw_choice(struct balancer *balancer)
{
	uint64_t z = balancer->seed += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void balancer_init(
    struct balancer *balancer, int64_t most_failures, int64_t pause_ms, uint64_t seed)
{
	*balancer = (struct balancer){.most_failures = most_failures,
	    .pause_ms = pause_ms,
	    .seed = seed,
	    .answered_at = INT64_MIN};
}

void balancer_finish(struct balancer *balancer)
{
	for (int i = 0; i < balancer->count; i++)
		free(balancer->rows[i]);
	free(balancer->rows);
	*balancer = (struct balancer){0};
}

/* --- the list ------------------------------------------------------------------------------ */

static void drop_unused(struct balancer *balancer)
{
	int kept = 0;

	for (int i = 0; i < balancer->count; i++) {
		struct balancer_address *row = balancer->rows[i];

		/* Requests in flight point to it. */
		if (!row->gone || row->in_flight)
			balancer->rows[kept++] = row;
		else
			free(row);
	}
	balancer->count = kept;
}

static struct balancer_address *find_or_add_address(
    struct balancer *balancer, const struct service_address *address)
{
	struct balancer_address *row;

	for (int i = 0; i < balancer->count; i++)
		if (service_address_equal(&balancer->rows[i]->address, address))
			return balancer->rows[i];

	row = xcalloc(1, sizeof *row);
	row->number = ++balancer->numbers;
	row->gone = true;
	balancer->rows = xrealloc(
	    balancer->rows, (size_t)(balancer->count + 1) * sizeof(struct balancer_address *));
	balancer->rows[balancer->count++] = row;
	return row;
}

void balancer_update(struct balancer *balancer, const struct service_address *addresses, int count)
{
	for (int i = 0; i < balancer->count; i++)
		balancer->rows[i]->gone = true;
	for (int i = 0; i < count; i++) {
		struct balancer_address *row = find_or_add_address(balancer, &addresses[i]);

		/* Two records about one address: the better priority counts. */
		if (row->gone || addresses[i].priority < row->address.priority)
			row->address = addresses[i];
		row->gone = false;
	}
	drop_unused(balancer);
}

int balancer_size(const struct balancer *balancer)
{
	int size = 0;

	for (int i = 0; i < balancer->count; i++)
		size += !balancer->rows[i]->gone;
	return size;
}

/* --- the choice ---------------------------------------------------------------------------- */

static bool was_tried(const struct balancer_address *row, const uint32_t *tried, int tried_count)
{
	for (int i = 0; i < tried_count; i++)
		if (tried[i] == row->number)
			return true;
	return false;
}

/* A weight of 0 is small, and not nothing (RFC 2782). */
static int64_t weight_of_address(const struct balancer_address *row)
{
	return row->address.weight > 0 ? row->address.weight : 1;
}

/* The candidates: those of the lowest priority that has one. Returns how many. */
static int find_candidates(const struct balancer *balancer, int64_t now, const uint32_t *tried,
    int tried_count, struct balancer_address **ret_rows)
{
	int count = 0;

	for (int i = 0; i < balancer->count; i++) {
		struct balancer_address *row = balancer->rows[i];

		if (row->gone || was_tried(row, tried, tried_count) ||
		    !breaker_allows(&row->breaker, now))
			continue;
		if (count && row->address.priority > ret_rows[0]->address.priority)
			continue;
		if (count && row->address.priority < ret_rows[0]->address.priority)
			count = 0;
		ret_rows[count++] = row;
	}
	return count;
}

/* Draws one of the candidates by weight, and moves it behind the others. */
static struct balancer_address *draw_candidate(
    struct balancer *balancer, struct balancer_address **rows, int count)
{
	struct balancer_address *drawn;
	int64_t sum = 0, at;
	int i = 0;

	for (int k = 0; k < count; k++)
		sum += weight_of_address(rows[k]);
	at = (int64_t)(draw_choice(balancer) % (uint64_t)sum);
	while (at >= weight_of_address(rows[i]))
		at -= weight_of_address(rows[i++]);
	drawn = rows[i];
	rows[i] = rows[count - 1];
	rows[count - 1] = drawn;
	return drawn;
}

static struct balancer_address *choose_of_two(
    struct balancer *balancer, struct balancer_address **rows, int count)
{
	struct balancer_address *one = draw_candidate(balancer, rows, count), *other;

	if (count == 1)
		return one;
	other = draw_candidate(balancer, rows, count - 1);
	return other->in_flight * weight_of_address(one) < one->in_flight * weight_of_address(other)
		   ? other
		   : one;
}

/* All breakers are open, or have their probe under way. */
static struct balancer_address *choose_soonest(
    const struct balancer *balancer, const uint32_t *tried, int tried_count)
{
	struct balancer_address *best = NULL;

	for (int i = 0; i < balancer->count; i++) {
		struct balancer_address *row = balancer->rows[i];

		if (row->gone || was_tried(row, tried, tried_count))
			continue;
		if (!best || row->breaker.until < best->breaker.until)
			best = row;
	}
	return best;
}

struct balancer_address *balancer_begin(
    struct balancer *balancer, int64_t now, const uint32_t *tried, int tried_count, bool *ret_probe)
{
	size_t size = (size_t)balancer->count + 1;
	struct balancer_address **rows = xcalloc(size, sizeof(struct balancer_address *));
	int count = find_candidates(balancer, now, tried, tried_count, rows);
	struct balancer_address *chosen = count ? choose_of_two(balancer, rows, count)
						: choose_soonest(balancer, tried, tried_count);

	free(rows);
	if (!chosen)
		return NULL;
	/* Ends the pause, so that the request counts as the probe and can close the breaker. */
	if (breaker_state(&chosen->breaker, now) == BREAKER_OPEN)
		chosen->breaker.until = now;
	*ret_probe = breaker_begin(&chosen->breaker, now);
	chosen->in_flight++;
	return chosen;
}

bool balancer_end(struct balancer *balancer, int64_t now, struct balancer_address *address,
    bool probe, enum breaker_outcome outcome)
{
	bool was_tripped = address->breaker.tripped, changed;

	breaker_end(
	    &address->breaker, now, probe, outcome, balancer->most_failures, balancer->pause_ms);
	changed = address->breaker.tripped != was_tripped;
	if (outcome == BREAKER_SUCCESS)
		balancer->answered_at = now;
	address->in_flight--;
	if (address->gone)
		drop_unused(balancer);
	return changed;
}
