"""What the conformance driver says of costs, against the function that its points were taken from.

usage: python3 conformance_cost.py PATH_TO_conformance
"""

import json
import subprocess
import sys

AMOUNTS = ["forward_ns", "backward_ns", "weight_ns", "stored_bytes", "weight_stored_bytes", "forward_peak_bytes",
           "backward_peak_bytes"]
ROWS, LENGTHS = [1, 2, 4, 8, 16], [256, 512, 1024, 2048, 4096]
MOST_TOKENS = 16384
checks, failures = 0, []


def check(condition, *what):
    global checks
    checks += 1
    if not condition:
        failures.append(" ".join(map(str, what)))
    return bool(condition)


def truth(rows, length):
    """A layer with a floor, whose costs are exactly of the fitted form above it."""
    tokens, squares = rows * length, rows * length**2
    forward = max(300_000, 20_000 + 400 * tokens + squares // 16)
    return {"forward_ns": forward, "backward_ns": 2 * forward, "weight_ns": forward, "stored_bytes": 34_000 * tokens,
            "weight_stored_bytes": 12_000 * tokens, "forward_peak_bytes": 50_000 * tokens,
            "backward_peak_bytes": 60_000 * tokens}


def cross_truth(rows, source, target):
    forward = 50_000 + 500 * rows * target + 100 * rows * source + rows * target**2 // 8 + rows * target * source // 4
    return {"forward_ns": forward, "backward_ns": 2 * forward}


def point(rows, length, **more):
    return {"kind": "decoder", "recompute": "none", "rows": rows, "input": length, **truth(rows, length), **more}


def failed(rows, length):
    return {"kind": "decoder", "recompute": "none", "rows": rows, "input": length, "out_of_memory": True}


def query(rows, length, **more):
    return {"kind": "decoder", "rows": rows, "input": length, **more}


def grid(*without):
    """All points up to the most tokens; larger ones ran out of memory."""
    return [point(r, n) if r * n <= MOST_TOKENS else failed(r, n) for r in ROWS for n in LENGTHS
            if (r, n) not in without]


def ask_all(cases):
    done = subprocess.run([sys.argv[1], "cost", "-"], input=json.dumps(cases), capture_output=True, text=True,
                          timeout=120)
    if done.returncode != 0 or done.stderr:
        sys.exit("the driver exits %d: %s" % (done.returncode, done.stderr))
    answers = json.loads(done.stdout)
    check(len(answers) == len(cases), len(cases), "cases get", len(answers), "answers")
    return answers


def ask(points, queries, **more):
    answer, = ask_all([{"points": points, "queries": queries, **more}])
    if not check(set(answer) == {"values"} and len(answer["values"]) == len(queries), "a case gives", answer):
        sys.exit("FAILED: %s" % failures)
    return answer["values"]


def close(value, expected, percent, *what):
    for amount in AMOUNTS:
        wanted = expected.get(amount, 0)
        if check(isinstance(value.get(amount), int), *what, "has no", amount, value):
            check(abs(value[amount] - wanted) * 100 <= percent * wanted, *what, amount, "is", value[amount], "for",
                  wanted)


def flags(value):
    return set(value) - set(AMOUNTS)


def measured_points():
    shapes = [(r, n) for r in ROWS for n in LENGTHS if r * n <= MOST_TOKENS]
    for more, percent in [({}, 0.01), ({"model": "table"}, 0.01), ({"monotone": False}, 0.01), ({"model": "fit"}, 1)]:
        for shape, value in zip(shapes, ask(grid(), [query(*s) for s in shapes], **more)):
            close(value, truth(*shape), percent, more, shape)
            check(not flags(value), more, shape, "carries", flags(value))


def between_points():
    shapes = [(3, 700), (1, 257), (5, 1500), (2, 3000), (7, 333), (1, 4000)]
    for more in [{"model": "table"}, {"model": "fit"}]:
        for shape, value in zip(shapes, ask(grid(), [query(*s) for s in shapes], **more)):
            close(value, truth(*shape), 2, more, shape)
            check(not flags(value), more, shape, "carries", flags(value))


def holes():
    missing = [(2, 1024), (4, 512), (1, 4096)]
    values = ask(grid(*missing), [query(*s) for s in [*missing, (2, 512)]])
    for shape, value in zip(missing, values):
        close(value, truth(*shape), 2, "hole", shape)
        check(value.get("filled") is True and flags(value) == {"filled"}, "hole", shape, "carries", flags(value))
    check(not flags(values[3]), "a measured point carries", flags(values[3]))
    values = ask(grid(*missing), [query(*s) for s in missing], model="fit")
    check(not any(map(flags, values)), "the fit has no holes, but carries", [flags(v) for v in values])


def out_of_memory():
    for outside in ["error", "fitted"]:
        shapes = [(8, 4096), (16, 2048), (9, 4096), (16, 8192), (1000, 4096)]
        for shape, value in zip(shapes, ask(grid(), [query(*s) for s in shapes], outside=outside)):
            check(set(value) == {"infeasible"}, outside, shape, "gives", value)
            check("out of memory" in value.get("infeasible", ""), outside, shape, "says", value)


def outside_of_points():
    shapes = [(32, 256), (1, 8192), (32, 512)]
    for shape, value in zip(shapes, ask(grid(), [query(*s) for s in shapes])):
        check(set(value) == {"error"} and "not measured" in value.get("error", ""), shape, "gives", value)
    # A fit has seen as many tokens in more rows: only the length is new to it.
    for more, beyond in [({"outside": "fitted"}, shapes), ({"model": "fit"}, [(1, 8192)])]:
        for shape, value in zip(shapes, ask(grid(), [query(*s) for s in shapes], **more)):
            close(value, truth(*shape), 2, more, shape)
            check(flags(value) == ({"extrapolated"} if shape in beyond else set()), more, shape, "carries",
                  flags(value))
            check(value.get("extrapolated", True) is True, more, shape, "carries", value)
    other, unknown = ask(grid(), [query(1, 512, recompute="full"), {"kind": "head", "rows": 1, "input": 9}])
    check("recompute full" in other.get("error", ""), "a recomputation without points gives", other)
    check("head" in unknown.get("error", ""), "a kind without points gives", unknown)


def unmeasured_amounts():
    bare = [{key: p[key] for key in ["kind", "rows", "input", "forward_ns", "backward_ns"]}
            for p in grid() if "out_of_memory" not in p]
    for model in ["table", "fit"]:
        value, = ask(bare, [query(2, 1024)], model=model)
        close(value, {key: truth(2, 1024)[key] for key in ["forward_ns", "backward_ns"]}, 1, model, "times alone")


def without_padding():
    """Samples that are concatenated go to the fit; one sample costs what one row costs."""
    for model in ["table", "fit"]:
        values = ask(grid(), [{"kind": "decoder", "tokens": 1024, "squares": 1024**2, "samples": 1},
                              {"kind": "decoder", "tokens": 4096, "squares": 4 * 1024**2, "samples": 4},
                              {"kind": "decoder", "tokens": 40960, "squares": 40 * 1024**2, "samples": 40}],
                     model=model)
        close(values[0], truth(1, 1024), 1, model, "one sample")
        close(values[1], truth(4, 1024), 1, model, "four samples")
        check([flags(v) for v in values] == [set(), set(), {"extrapolated"}], model, "carries", values)
    row, = ask(grid(), [query(1, 1024)], model="fit")
    sample, = ask(grid(), [{"kind": "decoder", "tokens": 1024, "squares": 1024**2, "samples": 1}], model="fit")
    check(row == sample, "one row costs", row, "and one sample", sample)
    # Scores in memory and times of third order, which such shapes have no sums for, are fitted without that order.
    scores = [{**p, "stored_bytes": 80 * p["rows"] * p["input"]**2, "weight_stored_bytes": 0, "forward_peak_bytes": 0,
               "backward_ns": p["backward_ns"] + p["rows"] * p["input"]**3 // 2**12}
              for p in grid() if "out_of_memory" not in p]
    sample, = ask(scores, [{"kind": "decoder", "tokens": 2048, "squares": 2 * 1024**2, "samples": 2}], model="fit")
    check("infeasible" not in sample and abs(sample["stored_bytes"] - 160 * 1024**2) < 2**21, "scores give", sample)


def cross_attention():
    points = [{"kind": "cross_decoder", "recompute": "selective", "rows": r, "input": n, "target": m,
               **cross_truth(r, n, m)} for r in [1, 2, 4] for n in LENGTHS for m in [128, 256, 512, 1024]
              if (n, m) != (1024, 256)]
    shapes = [(2, 2048, 512), (3, 700, 200), (1, 1024, 256)]
    queries = [{"kind": "cross_decoder", "recompute": "selective", "rows": r, "input": n, "target": m}
               for r, n, m in shapes]
    for model in ["table", "fit"]:
        values = ask(points, queries, model=model)
        for shape, value in zip(shapes, values):
            close(value, cross_truth(*shape), 2, model, "cross", shape)
        check([flags(v) for v in values] == [set(), set(), {"filled"} if model == "table" else set()], model,
              "cross carries", values)


def monotone():
    """A table falls with the length where its points do, unless it is made monotone."""
    points = grid()
    for p in points:
        if (p["rows"], p["input"]) == (4, 2048):
            p["stored_bytes"] = p["stored_bytes"] // 3
            p["weight_stored_bytes"] = 0
    queries = [query(4, n) for n in range(1024, 2049, 64)]
    for wanted in [True, False]:
        stored = [v["stored_bytes"] for v in ask(points, queries, monotone=wanted)]
        check((stored == sorted(stored)) == wanted, "monotone", wanted, "gives", stored)


def bad_cases():
    good = {"points": grid(), "queries": [query(1, 512)]}

    def with_point(**more):
        return {**good, "points": [*good["points"], {**point(2, 512), **more}]}

    bare = {key: value for key, value in point(2, 512).items() if key != "backward_ns"}
    cases = [
        ("points[1]: lacks the key \"backward_ns\"", {**good, "points": [point(1, 512), bare]}),
        ("forward_ns must be above 0, it is 0", with_point(forward_ns=0)),
        ("forward_ns must be above 0, it is -5", with_point(forward_ns=-5)),
        ("is the unit nanoseconds?", with_point(forward_ns=10**12)),
        ("forward_ns: must be an integer, is 1.5", with_point(forward_ns=1.5)),
        ("forward_ns: must be an integer, is null", with_point(forward_ns=None)),
        ("forward_ns disagree by more than 20 %", with_point(forward_ns=truth(2, 512)["forward_ns"] * 13 // 10)),
        ("mixed devices", {**good, "points": [point(1, 512, device="a"), point(2, 512, device="b")]}),
        ("it is the only shape", {**good, "points": [point(1, 512)]}),
        ("there are no points", {**good, "points": []}),
        ("lacks the key \"points\"", {"queries": []}),
        ("lacks the key \"queries\"", {"points": grid()}),
        ("unknown key \"row\"", with_point(row=1)),
        ("queries[0]: unknown key \"length\"", {**good, "queries": [{**query(1, 512), "length": 1}]}),
        ("queries[1]", {**good, "queries": [query(1, 512), query(0, 512)]}),
        ("queries[0].kind: must be one of", {**good, "queries": [{"kind": "mlp", "rows": 1, "input": 1}]}),
        ("model: must be one of table, fit", {**good, "model": "guess"}),
        ("outside: must be one of error, fitted", {**good, "outside": "guess"}),
        ("monotone: must be true or false", {**good, "monotone": 1}),
        ("must be an object", []),
    ]
    answers = ask_all([case for _, case in cases] + [good])
    for (words, _), answer in zip(cases, answers):
        check(set(answer) == {"error"} and words in answer["error"], "wanted", repr(words), "got", answer)
    check("values" in answers[-1], "a good case among bad ones gives", answers[-1])


for part in [measured_points, between_points, holes, out_of_memory, outside_of_points, unmeasured_amounts,
             without_padding, cross_attention, monotone, bad_cases]:
    part()
for failure in failures[:60]:
    print("FAILED:", failure[:600])
print("%d checks, %d failed" % (checks, len(failures)))
sys.exit(1 if failures else 0)
