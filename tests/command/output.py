"""What the command prints and writes: help, summaries, batches of the documented shuffle, equal bytes, progress.

usage: python3 output.py PATH_TO_dynapipe SOURCE_DIR
"""

import gzip
import json
import os
import pty
import re
import sys

from command import LENGTHS, ROWS, Session

HEADER = "task,input_tokens,target_tokens\n"
KEYS = {"predicted_ns": int, "lower_bound_ns": int, "planning_ns": int, "micro_batches": int, "samples": int,
        "real_tokens": int, "padded_tokens": int, "peak_bytes": list, "bubble": float}
session = Session(sys.argv)


class Twister:
    """The 64-bit Mersenne twister of the C++ standard."""

    def __init__(self, seed):
        self.state = [seed]
        for i in range(1, 312):
            before = self.state[-1]
            self.state.append((6364136223846793005 * (before ^ before >> 62) + i) % 2**64)
        self.at = 312

    def next(self):
        if self.at == 312:
            for i in range(312):
                x = self.state[i] >> 31 << 31 | self.state[(i + 1) % 312] & (2**31 - 1)
                self.state[i] = self.state[(i + 156) % 312] ^ x >> 1 ^ (0xB5026F5AA96619E9 if x & 1 else 0)
            self.at = 0
        x = self.state[self.at]
        self.at += 1
        x ^= x >> 29 & 0x5555555555555555
        x ^= x << 17 & 0x71D67FFFEDA60000
        x ^= x << 37 & 0xFFF7EEE000000000
        return x ^ x >> 43

    def below(self, bound):
        x = self.next()
        while x < 2**64 % bound:
            x = self.next()
        return x % bound


def shuffled(count, seed):
    twister, order = Twister(seed), list(range(count))
    for i in range(count - 1, 0, -1):
        j = twister.below(i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def help_and_version():
    done = session.run("--version")
    session.succeeded(done, "--version")
    header = (session.source / "include/dynapipe/core/version.hpp").read_text()
    version = re.search(r'version = "([^"]+)"', header).group(1)
    session.check(done.stdout.decode() == "dynapipe %s\n" % version, "--version prints", done.stdout)
    for words in (("--help",), ("-h",), ("plan", "--help"), ("check", "--help")):
        session.succeeded(session.run(*words), *words)
    text = session.run("--help").stdout.decode()
    session.check("Examples:" in text and "dynapipe plan --lengths" in text, "--help has no example")
    text = session.run("plan", "--help").stdout.decode()
    for option in ("--lengths", "--model", "--cluster", "--pp", "--dp", "--tp", "--batch-tokens", "--batch-samples",
                   "--batch", "--seed", "--schedule", "--recompute", "--layout", "--memory-limit", "--out", "--trace",
                   "--summary", "--all", "--queues", "--placement", "--stages-per-device"):
        session.check(option in text, "plan --help does not name", option)


def check_summary(summary, plan, what):
    for key, kind in KEYS.items():
        session.check(isinstance(summary.get(key), kind), what, "has", key, repr(summary.get(key)))
    batches = [mb for replica in plan["replicas"] for mb in replica["micro_batches"]]
    expected = {
        "predicted_ns": plan["predicted_ns"], "lower_bound_ns": plan["lower_bound_ns"],
        "micro_batches": len(batches), "samples": len(plan["lengths"]),
        "real_tokens": sum(read + target for read, target, _ in plan["lengths"]),
        "padded_tokens": sum(mb["rows"] * (mb["input_length"] + mb["target_length"]) for mb in batches),
        "peak_bytes": [max(replica["devices"][d]["peak_bytes"] for replica in plan["replicas"])
                       for d in range(plan["pipeline"]["devices"])]}
    for key, value in expected.items():
        session.check(summary[key] == value, what, key, "is", summary[key], "and not", value)
    busy = sum(i["end_ns"] - i["start_ns"] for replica in plan["replicas"] for device in replica["devices"]
               for i in device["instructions"] if i["op"] in ("forward", "backward"))
    whole = plan["predicted_ns"] * plan["pipeline"]["devices"] * len(plan["replicas"])
    session.check(abs(summary["bubble"] - (1 - busy / whole)) < 1e-6, what, "bubble is", summary["bubble"])


def summaries():
    for model, arguments in (("gpt-3.35b", ("--pp", 4, "--dp", 2)), ("t5-11b", ("--pp", 2, "--tp", 8, "--dp", 3)),
                             ("gpt-3.35b", ())):
        done = session.plan(*arguments, "--summary", "json", "--out", "plan.json", model=model)
        session.succeeded(done, model, "--summary json")
        lines = done.stdout.decode().splitlines()
        if session.check(len(lines) == 1, "--summary json prints", len(lines), "lines"):
            check_summary(json.loads(lines[0]), json.loads(session.read("plan.json")), model)
        text = session.plan(*arguments, "--summary", "text", model=model).stdout.decode()
        session.check(text.count("\n") == session.plan(*arguments, model=model).stdout.decode().count("\n"),
                      "the summary is not text by default")
        for word in ("micro-batches", "padding efficiency", "predicted", "lower bound", "peak memory", "planning time",
                     "device  0 |"):
            session.check(word in text, model, "the summary lacks", word)
        devices = arguments[1] if arguments else 1
        session.check(len(re.findall(r"^device +\d+ \|.{100}\|$", text, re.M)) == devices, model, "has no timeline")
    done = session.plan("--pp", 2, "--batch-samples", 2, "--all", "--out", "every", "--summary", "json")
    session.succeeded(done, "--all --summary json")
    lines = done.stdout.decode().splitlines()
    session.check(len(lines) == ROWS // 2, "--all prints", len(lines), "lines")
    names = sorted(os.listdir(session.folder / "every"))
    session.check(len(names) == ROWS // 2, "--all writes", names)
    for line, name in zip(lines, names):
        check_summary(json.loads(line), json.loads(session.read("every/" + name)), name)


def batches():
    lengths = [tuple(map(int, row.split(",")[1:])) for row in LENGTHS.splitlines()[1:]]
    for seed in (0, 1, 12345, 2**64 - 1):
        order = shuffled(ROWS, seed)
        cut, room = [], 0
        for row in order:
            tokens = sum(lengths[row])
            if not cut or tokens > room:
                cut.append([])
                room = 800
            cut[-1].append(row)
            room -= tokens
        for arguments, expected in ((("--batch-tokens", 800), cut), (("--batch-samples", 4), [order[:4], order[4:]]),
                                    ((), [order])):
            for k, rows in enumerate(expected):
                done = session.plan("--seed", seed, "--batch", k, *arguments, "--out", "plan.json")
                if session.succeeded(done, "seed", seed, "batch", k, arguments):
                    p = json.loads(session.read("plan.json"))
                    session.check(p["source_rows"] == rows, "seed", seed, arguments, "batch", k, "is",
                                  p["source_rows"], "and not", rows)
                    read = [[max(1, sum(lengths[row]) - 1), 0, lengths[row][1] or sum(lengths[row]) - 1]
                            for row in rows]
                    session.check(p["lengths"] == read, "seed", seed, "batch", k, "reads", p["lengths"])
            done = session.plan("--seed", seed, "--batch", len(expected), *arguments)
            session.refused(done, ["--batch"], "seed", seed, "beyond the last batch,", arguments)
    long = session.write("long.csv", HEADER + "a,5000,1\nb,10,1\nc,10,1\nd,6000,1\n")
    for k in range(3):
        done = session.plan("--batch-tokens", 1000, "--batch", k, "--out", "plan.json", lengths=long)
        if session.succeeded(done, "a row longer than a batch,", k):
            rows = json.loads(session.read("plan.json"))["source_rows"]
            session.check(rows in ([0], [3], [1, 2], [2, 1], [1], [2]), "a longer row is batched as", rows)


def same_bytes():
    for model, arguments in (("gpt-3.35b", ("--pp", 4, "--dp", 2)), ("t5-11b", ("--pp", 2, "--tp", 8))):
        outs = []
        for run in range(2):
            names = ["run%d.%s" % (run, end) for end in ("json", "trace", "svg")]
            done = session.plan(*arguments, "--out", names[0], "--trace", names[1], "--draw", names[2], model=model)
            session.succeeded(done, model, "run", run)
            outs.append([session.read(name) for name in names])
        session.check(outs[0] == outs[1], model, "two runs differ")
        session.check(b"traceEvents" in outs[0][1] and json.loads(outs[0][1]), model, "has no trace")
        session.check(outs[0][2].startswith(b"<svg") and outs[0][2].endswith(b"</svg>\n"), model, "has no drawing")
        cut = (*arguments, "--batch-samples", 2, "--seed", 5)
        session.succeeded(session.plan(*cut, "--all", "--out", model, model=model), model, "--all")
        for k in range(ROWS // 2):
            done = session.plan(*cut, "--batch", k, "--out", "one.json", model=model)
            session.succeeded(done, model, "--batch", k)
            session.check(session.read("one.json") == session.read("%s/batch_%05d.json" % (model, k)), model,
                          "--all and --batch", k, "differ")
    # Gzipped, the same file gives the same plan; its name does not matter for that.
    session.write("packed/lengths.csv", gzip.compress(LENGTHS.encode()))
    session.plan("--out", "plain.json")
    session.succeeded(session.plan("--out", "packed.json", lengths="packed/lengths.csv"), "gzipped lengths")
    session.check(session.read("plain.json") == session.read("packed.json"), "gzipped lengths give another plan")
    # A trace for each batch is asked for: none may be written over.
    done = session.plan("--batch-samples", 2, "--all", "--out", "traced", "--trace", "all.trace")
    if done.returncode == 0:
        traces = [name for name in session.files() if "trace" in name and b"traceEvents" in session.read(name)
                  and not name.startswith("run")]
        session.check(len(traces) == ROWS // 2, "--all with --trace leaves the traces", traces)
    else:
        session.refused(done, ["--trace"], "--all with --trace")
    session.succeeded(session.plan("--out", "/dev/null", "--trace", "/dev/null"), "output into a device")


def on_a_terminal(*arguments, **options):
    """Exit status, stdout, and what a terminal at stderr gets."""
    terminal, end = pty.openpty()
    done = session.plan(*arguments, stderr=end, **options)
    os.close(end)
    seen = b""
    try:
        while True:
            part = os.read(terminal, 65536)
            if not part:
                break
            seen += part
    except OSError:
        pass  # how Linux says that the other end is closed
    os.close(terminal)
    return done.returncode, done.stdout, seen.decode()


def progress():
    try:
        os.close(pty.openpty()[0])
    except OSError as problem:
        print("no terminal here, progress is not tested:", problem)
        return
    status, out, seen = on_a_terminal("--batch-samples", 2, "--all", "--out", "shown", "--summary", "json")
    session.check(status == 0, "--all on a terminal exits", status, seen)
    session.check("planning [" in seen and "\r" in seen, "no progress bar on a terminal:", repr(seen))
    session.check("%d/%d" % (ROWS // 2, ROWS // 2) in seen and seen.endswith("\n"), "the bar does not end:", repr(seen))
    session.check([json.loads(line)["batch"] for line in out.decode().splitlines()] == [0, 1, 2], "stdout is", out)
    done = session.plan("--batch-samples", 2, "--all", "--out", "piped")
    session.check(done.stderr == b"" and b"planning [" not in done.stdout, "a progress bar in a pipe")
    _, _, seen = on_a_terminal("--pp", 2)
    session.check(seen == "", "a progress bar for one batch:", repr(seen))
    # An error after some batches stands on a line of its own.
    order = shuffled(4, 0)
    rows = ["qa,10,5\n"] * 4
    rows[order[2]] = "qa,90000000,5\n"
    status, _, seen = on_a_terminal("--batch-samples", 1, "--all", "--out", "fails", lengths=session.write(
        "fails.csv", HEADER + "".join(rows)))
    session.check(status == 2, "a batch that does not fit exits", status)
    session.check(re.search(r"(^|\n)dynapipe: batch 2: sample", seen), "the error stands behind the bar:", repr(seen))


help_and_version()
summaries()
batches()
same_bytes()
progress()
session.close()
