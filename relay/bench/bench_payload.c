#include "bench.h"
#include "text.h"

/* Numbers begin here, so that the first billions of them have ten digits. */
#define FIRST_NUMBER INT64_C(1000000000)

/* xorshift64*: the same payload for the same number. */
static uint64_t draw_number(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static unsigned draw_below(uint64_t *state, unsigned count)
{
	return (unsigned)(draw_number(state) >> 33) % count;
}

#define PICK(state, words) words[draw_below(state, sizeof words / sizeof *words)]

static const char *const first_names[] = {"Ada", "Alan", "Barbara", "Donald", "Edsger", "Frances",
    "Grace", "Hedy", "John", "Katherine", "Ken", "Margaret", "Niklaus", "Radia", "Tony", "Vint"};
static const char *const last_names[] = {"Allen", "Codd", "Dijkstra", "Hamilton", "Hoare", "Hopper",
    "Johnson", "Knuth", "Lamarr", "Liskov", "Lovelace", "Perlman", "Ritchie", "Turing", "Wirth"};
static const char *const cities[] = {"Amsterdam", "Berlin", "Copenhagen", "Dublin", "Edinburgh",
    "Florence", "Ghent", "Helsinki", "Lisbon", "Prague", "Tallinn", "Vienna", "Zurich"};
static const char *const things[] = {"espresso machine", "filter paper", "grinder", "kettle", "mug",
    "milk jug", "scale", "tamper", "thermometer", "timer", "water filter"};
static const char *const events[] = {
    "order-placed", "order-paid", "order-packed", "order-sent", "order-delivered"};

static void add_item(struct text *out, uint64_t *state)
{
	text_addf(out, "{\"sku\":\"%c%c-%05u\",\"name\":\"%s\",\"quantity\":%u,\"price\":%u.%02u}",
	    'A' + draw_below(state, 26), 'A' + draw_below(state, 26), draw_below(state, 100000),
	    PICK(state, things), 1 + draw_below(state, 5), 3 + draw_below(state, 400),
	    draw_below(state, 100));
}

void bench_payload(struct text *out, int64_t number, int64_t bytes)
{
	enum { TAIL = 62, ITEM = 66 };
	uint64_t state = (uint64_t)(number + 1) * UINT64_C(0x9e3779b97f4a7c15);
	const char *first = PICK(&state, first_names), *last = PICK(&state, last_names);
	size_t begin = out->length;

	text_addf(out,
	    "{\"n\":%lld,\"seq\":%lld,\"event\":\"%s\",\"order\":\"%08x\",\"customer\":{"
	    "\"name\":\"%s "
	    "%s\",\"email\":\"%s.%s%u@example.com\",\"city\":\"%s\"},\"items\":[",
	    (long long)(FIRST_NUMBER + number), (long long)(number / BENCH_KEYS),
	    PICK(&state, events), (unsigned)draw_number(&state), first, last, first, last,
	    draw_below(&state, 1000), PICK(&state, cities));
	do {
		add_item(out, &state);
		text_add(out, ",");
	} while ((int64_t)(out->length - begin) + TAIL + ITEM / 2 < bytes);
	out->length--; /* the last comma */
	text_addf(out,
	    "],\"currency\":\"EUR\",\"total\":%u.%02u,\"at\":\"2026-%02u-%02uT%02u:%02u:%02uZ\"}",
	    10 + draw_below(&state, 2000), draw_below(&state, 100), 1 + draw_below(&state, 12),
	    1 + draw_below(&state, 28), draw_below(&state, 24), draw_below(&state, 60),
	    draw_below(&state, 60));
}

int64_t bench_number(const void *payload, size_t length)
{
	enum { DIGITS = 10 };
	const char *at;
	int64_t number = 0;

	/* records of others and tombstones have no number */
	if (!payload || length < BENCH_NUMBER_AT + DIGITS)
		return -1;
	at = (const char *)payload + BENCH_NUMBER_AT;
	for (int i = 0; i < DIGITS; i++) {
		if (at[i] < '0' || at[i] > '9')
			return -1;
		number = number * 10 + (at[i] - '0');
	}
	return number - FIRST_NUMBER;
}
