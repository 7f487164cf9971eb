"""Medians, ratios and bounds of the results; as text for people and for README.md."""

from statistics import median

# key, name, unit
DRAIN = [
    ("drain_rate", "drain, first record to last", "rows/s"),
    ("drain_per_cpu", "drain: messages a CPU second", "/s"),
    ("drain_cpu_process", "drain: CPU a million, process", "s"),
    ("drain_cpu_backends", "drain: CPU a million, its sessions", "s"),
    ("drain_cpu_broker", "drain: CPU a million, the broker", "s"),
    ("drain_cpu_whole", "drain: CPU a million, from the start", "s"),
    ("drain_begin", "drain: from the start to the first record", "s"),
    ("drain_memory", "drain: peak resident memory", "MiB"),
]
# of each rate, which comes in front of the key and of the name
AT_RATE = [
    ("p50", "commit to consumer, p50", "ms"),
    ("p99", "commit to consumer, p99", "ms"),
    ("stamp_p50", "the same from before the commit, p50", "ms"),
    ("stamp_p99", "the same from before the commit, p99", "ms"),
    ("core", "process and its sessions", "% core"),
    ("per_cpu", "messages a CPU second", "/s"),
    ("cpu_process", "CPU a million, process", "s"),
    ("cpu_backends", "CPU a million, its sessions", "s"),
    ("cpu_broker", "CPU a million, the broker", "s"),
    ("memory", "peak resident memory", "MiB"),
    ("held", "the writer held", ""),
]
REST_AND_CRASH = [
    ("idle_process", "idle, process", "% core"),
    ("idle_backends", "idle, its sessions", "% core"),
    ("idle", "idle, together", "% core"),
    ("wal_held", "WAL held back while it is stopped", "MiB"),
    ("drain_twice", "published twice in the drain", ""),
    ("crash_at", "published when kill -9 came", "%"),
    ("crash_twice", "published twice after it", ""),
    ("crash_seconds", "from the kill to the last record", "s"),
    ("crash_backwards", "out of their key's order after it", ""),
]


def figures_of(result):
    """The figures that were measured: --parts and --rates leave out some."""
    rates = [(f"rate{rate}_{key}", f"{rate:,}/s: {name}", unit)
             for rate in result["about"]["rates"] for key, name, unit in AT_RATE]
    return [row for row in DRAIN + rates + REST_AND_CRASH if row[0] in result["medians"]["relay"]]


# what is bounded, key, beside whom (None: the value itself), '<' at most or '>' at least, bound
BOUNDS = [
    ("drain rate, beside tuned", "drain_rate", "tuned", ">", 4),
    ("messages a CPU second in the drain, beside tuned", "drain_per_cpu", "tuned", ">", 5),
    ("messages a CPU second at 1,000/s, beside tuned", "rate1000_per_cpu", "tuned", ">", 1),
    ("p50 at 1,000/s, beside tuned", "rate1000_p50", "tuned", "<", 1 / 3),
    ("p99 at 1,000/s, beside tuned", "rate1000_p99", "tuned", "<", 2 / 3),
    ("p50 at 1,000/s, beside default", "rate1000_p50", "default", "<", 1 / 20),
    ("p99 at 1,000/s, beside default", "rate1000_p99", "default", "<", 1 / 20),
    ("p50 at 1,000/s from before the commit, beside tuned", "rate1000_stamp_p50", "tuned", "<",
     1 / 3),
    ("p99 at 1,000/s from before the commit, beside tuned", "rate1000_stamp_p99", "tuned", "<",
     2 / 3),
    ("p50 at 1,000/s from before the commit, beside default", "rate1000_stamp_p50", "default",
     "<", 1 / 20),
    ("p99 at 1,000/s from before the commit, beside default", "rate1000_stamp_p99", "default",
     "<", 1 / 20),
    ("idle, process and its sessions, % of a core", "idle", None, "<", 0.5),
    ("peak memory in the drain, beside tuned", "drain_memory", "tuned", "<", 1 / 10),
    ("peak memory in the drain, beside default", "drain_memory", "default", "<", 1 / 10),
    ("peak memory at 1,000/s, beside tuned", "rate1000_memory", "tuned", "<", 1 / 10),
    ("peak memory at 1,000/s, beside default", "rate1000_memory", "default", "<", 1 / 10),
    ("published twice after kill -9, beside tuned", "crash_twice", "tuned", "<", 1 / 20),
]


def ratio(value, reference):
    return value / reference if reference else None


def judged(medians, name, key, beside, relation, bound):
    value = medians["relay"][key]
    if beside:
        value = ratio(value, medians[beside][key])
    # beside nothing there is no ratio, and a bound that cannot be seen is not reached
    reached = value is not None and (value <= bound if relation == "<" else value >= bound)
    return {"name": name, "value": value, "relation": relation, "bound": bound,
            "reached": reached}


def summary(results, about):
    medians = {system: {key: median(values) for key, values in figures.items()}
               for system, figures in results.items()}
    ratios = {system: {key: ratio(medians["relay"][key], value)
                       for key, value in figures.items()}
              for system, figures in medians.items() if system != "relay"}
    return {"about": about, "runs": results, "medians": medians, "ratios": ratios,
            "bounds": [judged(medians, *bound) for bound in BOUNDS if bound[1] in medians["relay"]]}


def shown(value):
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def rows_of(result):
    titles = result["about"]["titles"]
    yield ["figure", *titles.values(), "relay : default", "relay : tuned"]
    for key, name, unit in figures_of(result):
        values = [shown(result["medians"][system][key]) for system in titles]
        yield [name + (f", {unit}" if unit else ""), *values,
               *(shown(result["ratios"][system][key]) for system in ("default", "tuned"))]


def bounds_of(result):
    yield ["bound", "measured", "asked for", "reached"]
    for bound in result["bounds"]:
        relation = "≤" if bound["relation"] == "<" else "≥"
        yield [bound["name"], shown(bound["value"]), f"{relation} {shown(bound['bound'])}",
               "yes" if bound["reached"] else "**no**"]


def aligned(rows):
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
             for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def text(result):
    about = result["about"]
    loads = [part["load"] for part in about["loads"]]
    head = [f"{about['date']}, {about['machine']}; {about['versions']}", about["command"],
            f"{about['messages']:,} rows of a drain; {about['seconds']} s at each rate, "
            f"{about['idle_seconds']} s idle; medians of {about['runs']}, the kill once",
            f"load average before the parts: {min(loads):.1f} to {max(loads):.1f}, "
            f"median {median(loads):.1f} (the part before is in it)"]
    bounds = ["", aligned(bounds_of(result))] if result["bounds"] else []
    return "\n".join([*head, "", aligned(rows_of(result)), *bounds])
