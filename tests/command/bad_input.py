"""Bad input of every kind: exit status 2, one clear line, no file left behind, files that were there as they were.

usage: python3 bad_input.py PATH_TO_dynapipe SOURCE_DIR
"""

import gzip
import json
import os
import sys

from command import ROWS, Session

HEADER = "task,input_tokens,target_tokens\n"
MODEL = {"format": "dynapipe.model", "version": 1, "name": "small", "encoder_layers": 0, "decoder_layers": 4,
         "cross_attention": False, "hidden": 64, "heads": 2, "ffn": 256, "vocabulary": 1000, "tied_head": True,
         "dtype": "bf16"}
CLUSTER = {"format": "dynapipe.cluster", "version": 1, "name": "own", "devices_per_node": 8,
           "memory_bytes": 42949672960, "matmul_tflops": 312, "memory_gbps": 1555, "intra_node": {"gbps": 4800},
           "inter_node": {"gbps": 100}}

session = Session(sys.argv)
OLD = b"an older plan\n"


def refuse(what, words, *arguments, run=None, **options):
    """Refused whether or not the output is there already; in both cases no file changes."""
    for there in (False, True):
        out = session.folder / "out.json"
        if there:
            out.write_bytes(OLD)
        elif out.exists():
            out.unlink()
        before = session.files()
        done = (run or session.plan)(*arguments, **options)
        session.refused(done, words, what)
        after = session.files()
        if done.returncode == 0:
            continue
        session.check(after == before, what, "leaves or changes files:",
                      sorted(name for name in set(after) | set(before) if after.get(name) != before.get(name)))


def refuse_option(words, *arguments, **options):
    refuse(" ".join(map(str, arguments)) or "no option", words, *arguments, "--out", "out.json", **options)


def lengths_files():
    cases = {
        "": ["line 1"],
        HEADER: ["line 1", "no rows"],
        "task,input_tokens\nqa,1\n": ["line 1", "target_tokens"],
        HEADER + "qa,1,2\nqa,1\n": ["line 3"],
        HEADER + "qa,1,2,3\n": ["line 2"],
        HEADER + "qa,1,2\nqa,-5,2\n": ["line 3", "-5", "negative"],
        HEADER + "qa,1,2\nqa,5,-2\n": ["line 3", "-2", "negative"],
        HEADER + "qa,x,2\n": ["line 2", "x", "input_tokens"],
        HEADER + "qa,1.5,2\n": ["line 2", "1.5"],
        HEADER + "qa,1,\n": ["line 2", "target_tokens"],
        HEADER + "qa,0,0\n": ["line 2", "without any token"],
        HEADER + "qa,2147483649,0\n": ["line 2", "2147483649", "2^31"],
        HEADER + "qa,99999999999999999999999,0\n": ["line 2", "2^31"],
        HEADER + "\"qa,1,2\n": ["line 2", "quote"],
        "\x00\x01\x02": ["line 1"],
    }
    for text, words in cases.items():
        name = session.write("bad.csv", text)
        refuse("lengths " + repr(text[:60]), ["bad.csv", *words], "--out", "out.json", lengths=name)
    session.write("cut.csv.gz", gzip.compress((HEADER + "qa,1,2\n" * 500).encode())[:-20])
    refuse("cut gzip", ["cut.csv.gz", "gzip"], "--out", "out.json", lengths="cut.csv.gz")
    refuse("missing lengths", ["nowhere.csv", "No such file"], "--out", "out.json", lengths="nowhere.csv")
    refuse("a folder as lengths", [str(session.folder), "directory"], "--out", "out.json", lengths=session.folder)
    refuse("no lengths", [], "--out", "out.json", lengths="")
    one = session.write("lossless.csv", HEADER + "doc,1,0\n")
    refuse("nothing to learn", ["loss token"], "--out", "out.json", lengths=one)
    refuse("nothing to learn, encoder-decoder", ["loss token"], "--pp", "4", "--tp", "8", "--out", "out.json",
           lengths=session.write("inputs.csv", HEADER + "doc,10,0\n"), model="t5-11b")


def spec_files():
    refuse("unknown model", ["unknown model 'gpt-5'", "gpt-6.7b"], "--out", "out.json", model="gpt-5")
    refuse("unknown cluster", ["unknown cluster 'b200'", "a100-40g"], "--out", "out.json", cluster="b200")
    refuse("no model", [], "--out", "out.json", model="")
    refuse("a folder as model", ["directory"], "--out", "out.json", model=session.folder)
    refuse("a long model name", [], "--out", "out.json", model="m" * 5000)
    refuse("a name of two lines", ["unknown model"], "--out", "out.json", model="gpt\n6.7b")
    bad = [("model", json.dumps(MODEL)[:-5], ["bad.json:1:"]), ("model", "", ["bad.json"]),
           ("model", "[]", ["bad.json", "object"]), ("cluster", "{", ["bad.json:1:"]),
           ("model", json.dumps(CLUSTER), ["bad.json"]), ("cluster", json.dumps(MODEL), ["bad.json"]),
           ("model", "[" * 100000, ["bad.json"]), ("cluster", "\x80\x81", ["bad.json"])]
    for changes in ({"hidden": 0}, {"hidden": -1}, {"hidden": "big"}, {"heads": 3, "head_dim": 8, "kv_heads": 2},
                    {"dtype": "int8"}, {"decoder_layers": 0}, {"decoder_layers": 1e30}, {"hidden": 64.5},
                    {"cross_attention": True}, {"encoder_layers": 3}, {"experts": 8}, {"version": 2},
                    {"attention": "none"}, {"ffn": None}, {"vocabulary": 10**12}, {"surprise": 1}):
        bad.append(("model", json.dumps({**MODEL, **changes}), ["bad.json", next(iter(changes))]))
    bad.append(("model", json.dumps({**MODEL, "hidden": 65}), ["bad.json", "65"]))
    for changes in ({"memory_bytes": 0}, {"memory_bytes": -4}, {"efficiency": 0}, {"efficiency": 1.01},
                    {"matmul_tflops": -1}, {"memory_gbps": "fast"}, {"devices_per_node": 0}, {"reserve_bytes": -1},
                    {"launch_floor_ns": -1}, {"intra_node": {}}, {"inter_node": {"gbps": 0}}, {"name": 7}):
        bad.append(("cluster", json.dumps({**CLUSTER, **changes}), ["bad.json", next(iter(changes))]))
    for what, text, words in bad:
        name = session.write("bad.json", text.encode("latin-1"))
        refuse(what + " " + text[:200], words, "--out", "out.json", **{what: name})


def counts():
    for option in ("--pp", "--dp", "--tp", "--stages-per-device"):
        for value in ("0", "-1", "-99999999999999999999", "99999999999999999999", "1.5", "two", "1e3", ""):
            refuse_option([], option, value)
    refuse_option(["16 layers", "17 pipeline stages", "--pp"], "--pp", "17")
    refuse_option(["layers"], "--pp", "1000000")
    refuse_option(["--stages-per-device"], "--pp", "6", "--stages-per-device", "3", "--placement", "v")
    refuse_option(["layers"], "--pp", "1000", "--stages-per-device", "1000000", "--placement", "interleaved")
    refuse_option(["48 layers"], "--pp", "49", "--tp", "8", model="t5-11b")
    refuse_option(["32 heads", "3"], "--tp", "3")
    refuse_option(["32 heads", "64"], "--tp", "64")
    refuse_option(["linear"], "--stages-per-device", "2")
    for value in ("1", "-1", "99999999999999999999", "x", ""):
        refuse_option(["--batch"], "--batch", value)
    refuse_option(["batches 0..%d" % (ROWS // 2 - 1)], "--batch-samples", "2", "--batch", ROWS // 2)
    for option in ("--batch-tokens", "--batch-samples"):
        for value in ("0", "-1", "x", "1.5", ""):
            refuse_option([], option, value)
    refuse_option(["--batch-tokens", "--batch-samples"], "--batch-tokens", "100", "--batch-samples", "2")
    for value in ("-1", "1.5", "x", "18446744073709551616"):
        refuse_option(["--seed"], "--seed", value)


def words_and_files():
    for option, value in (("--schedule", "gpipe2"), ("--schedule", "ADAPTIVE"), ("--recompute", "some"),
                          ("--placement", "zigzag"), ("--queues", "many"), ("--summary", "xml"),
                          ("--layout", "ragged")):
        refuse_option([option, value], option, value)
    for value in ("", "0", "-5GiB", "40", "1.5GiB", "GiB", "40 GiB", "40gib", "lots", "0x40", "1e9", "nan",
                  "99999999999999999999999"):
        words = ["--memory-limit"] if value != "40" else ["40"]
        refuse_option(words, "--memory-limit", value)
    refuse_option([], "--no-such-option")
    refuse_option([], "surplus")
    refuse_option(["--all"], "--all", "--batch", "1")
    refuse("--all without --out", ["--all", "--out"], "--all")
    for option in ("--out", "--trace", "--draw"):
        refuse(option + " in a missing folder", ["nowhere/x.json", "No such file"], option, "nowhere/x.json")
        refuse(option + " is a folder", ["cannot be written"], option, session.folder)
        refuse(option + " on a full disk", ["/dev/full", "No space left"], option, "/dev/full")
        refuse(option + " below a file", ["lengths.csv/x.json"], option, "lengths.csv/x.json")
    for option in ("--trace", "--draw"):
        refuse("--out with a bad " + option, ["nowhere/x.json"], "--out", "out.json", option, "nowhere/x.json")
    refuse("--all into a file", ["lengths.csv"], "--all", "--out", "lengths.csv")
    refuse("--all below a file", ["lengths.csv"], "--all", "--out", "lengths.csv/plans")
    refuse("--all of a batch that does not fit", ["sample"], "--all", "--out", "plans",
           lengths=session.write("one_long.csv", HEADER + "qa,9000000,1\n"))
    if os.geteuid() != 0:
        locked = session.folder / "locked"
        locked.mkdir(mode=0o500)
        refuse("unwritable folder", ["locked/x.json", "Permission denied"], "--out", "locked/x.json")
    refuse("no arguments", [], run=session.run)
    refuse("unknown subcommand", [], "fly", run=session.run)
    refuse("plan without arguments", ["--lengths"], "plan", run=session.run)
    refuse("check without files", [], "check", run=session.run)
    refuse("check of a missing file", ["nowhere.json", "No such file"], "check", "nowhere.json", run=session.run)
    refuse("check of a folder", ["directory"], "check", session.folder, run=session.run)
    refuse("check of what is no JSON", ["lengths.csv:1:"], "check", "lengths.csv", run=session.run)
    with open("/dev/full", "wb") as full:
        for words in (("--help",), ("--version",), ("plan", "--help")):
            session.refused(session.run(*words, stdout=full), [], "full stdout of", *words)
        session.refused(session.plan(stdout=full), [], "full stdout of plan")


def samples_that_do_not_fit():
    long = session.write("long.csv", HEADER + "qa,100,1\nqa,4000000,3\nqa,50,1\n")
    for arguments, knob in (((), "--recompute full"), (("--recompute", "selective"), "--recompute full"),
                            (("--recompute", "full"), "--memory-limit")):
        for seed in range(4):
            done = session.plan("--seed", seed, "--batch-samples", "3", "--out", "out.json", *arguments, lengths=long)
            what = "long sample with %s, seed %d" % (" ".join(arguments), seed)
            # Data row 1: 4,000,002 tokens read, 4,000,008 padded.
            session.refused(done, ["data row 1", "40000", "bytes", knob, "--pp", "--tp"], what)
            numbers = [int(word) for word in done.stderr.decode().replace(",", " ").split() if word.isdigit()]
            large = [n for n in numbers if n > 10**9]
            session.check(len(large) == 2 and large[0] > large[1], what, "gives not bytes needed and there:", large)
    refuse("state alone", ["device 0", "weights", "17179869184", "--pp"], "--memory-limit", "16GiB", "--out",
           "out.json")
    refuse("a limit of one byte", ["device 0"], "--memory-limit", "1", "--out", "out.json")
    # Every length up to 2^31 is refused or planned, in no case overflowed.
    vast = session.write("vast.json", json.dumps({**CLUSTER, "memory_bytes": 2**63 - 1}))
    for rows in (1, 8):
        for lengths in ("2147483648,2147483648", "2147483648,0", "0,2147483648", "1073741825,7"):
            name = session.write("vast.csv", HEADER + ("doc,%s\n" % lengths) * rows)
            refuse("%d of %s" % (rows, lengths), ["sample", "bytes"], "--batch-samples", rows, "--out", "out.json",
                   lengths=name)
            for arguments in ((), ("--pp", "8"), ("--pp", "16", "--recompute", "full"), ("--dp", "4")):
                what = "%d of %s with room for all, %s" % (rows, lengths, " ".join(arguments))
                done = session.plan("--batch-samples", rows, "--out", "vast_plan.json", *arguments, lengths=name,
                                    cluster=vast)
                if done.returncode == 2:
                    session.refused(done, ["2^63"], what)
                    continue
                if session.succeeded(done, what):
                    session.succeeded(session.run("check", "vast_plan.json"), what, "checked:")
    slow = session.write("slow.json", json.dumps({**CLUSTER, "memory_bytes": 2**30, "launch_floor_ns": 10**18}))
    small = session.write("small.json", json.dumps({**MODEL, "decoder_layers": 1}))
    many = session.write("many.csv", HEADER + "a,30000,20\n" * 300)
    refuse("times beyond measure", ["launch_floor_ns"], "--batch-samples", 300, "--out", "out.json", lengths=many,
           model=small, cluster=slow)
    huge = session.write("huge.json", json.dumps({**MODEL, "hidden": 10**9, "heads": 10**9, "ffn": 10**9,
                                                  "gated": True, "dtype": "fp64", "vocabulary": 10**9}))
    refuse("the largest model", [], "--out", "out.json", model=huge)
    late = session.write("late.json", json.dumps({**CLUSTER, "intra_node": {"gbps": 1, "latency_ns": 2**62}}))
    refuse("the slowest link", ["latency_ns"], "--tp", "8", "--pp", "2", "--out", "out.json", cluster=late)


lengths_files()
spec_files()
counts()
words_and_files()
samples_that_do_not_fit()
session.close()
