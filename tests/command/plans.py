"""Plans of every kind hold, by `dynapipe check` and, where it stands beside the sources, by the independent checker.

usage: python3 plans.py PATH_TO_dynapipe SOURCE_DIR
"""

import itertools
import json
import random
import subprocess
import sys

from command import ROWS, Session

HEADER = "task,input_tokens,target_tokens\n"
session = Session(sys.argv)
made = []


def plan(what, *arguments, **options):
    name = "plan_%03d.json" % len(made)
    if not session.succeeded(session.plan(*arguments, "--out", name, **options), what):
        return None
    made.append((name, what))
    return json.loads(session.read(name))


def small_models():
    model = {"format": "dynapipe.model", "version": 1, "name": "small", "encoder_layers": 0, "decoder_layers": 9,
             "cross_attention": False, "hidden": 256, "heads": 4, "kv_heads": 2, "ffn": 512, "gated": True,
             "vocabulary": 1000, "tied_head": False, "attention_kernel": "unfused", "dtype": "fp16"}
    session.write("gpt.json", json.dumps(model))
    model.update(name="both", encoder_layers=5, decoder_layers=6, cross_attention=True, gated=False, tied_head=True)
    session.write("t5.json", json.dumps(model))
    cluster = {"format": "dynapipe.cluster", "version": 1, "name": "slow", "devices_per_node": 2,
               "memory_bytes": 2 << 30, "matmul_tflops": 50, "memory_gbps": 900, "launch_floor_ns": 20000,
               "intra_node": {"gbps": 200, "latency_ns": 3000}, "inter_node": {"gbps": 4, "latency_ns": 30000}}
    session.write("slow.json", json.dumps(cluster))
    chance = random.Random(17)
    rows = ["t,%d,%d\n" % (chance.randrange(1, 1200), chance.randrange(1, 120)) for _ in range(60)]
    session.write("sixty.csv", HEADER + "".join(rows))


def every_kind():
    for model, schedule, queues, (placement, per_device) in itertools.product(
            ("gpt.json", "t5.json"), ("adaptive", "1f1b"), ("single", "per_peer", "per_direction"),
            (("linear", 1), ("interleaved", 2), ("v", 2), ("v", 3))):
        recompute = ("none", "selective", "full")[len(made) % 3]
        dp = len(made) % 2 + 1
        what = " ".join((model, schedule, queues, placement, str(per_device), recompute, "dp", str(dp)))
        arguments = ("--schedule", schedule, "--queues", queues, "--placement", placement, "--stages-per-device",
                     per_device, "--recompute", recompute, "--pp", 3, "--dp", dp)
        files = {"lengths": "sixty.csv", "model": model, "cluster": "slow.json"}
        if schedule == "1f1b" and per_device > 1:
            session.refused(session.plan(*arguments, **files), ["1f1b", "one stage per device"], what)
            continue
        p = plan(what, *arguments, **files)
        if p is None:
            continue
        pipeline = p["pipeline"]
        session.check(pipeline["schedule"] == schedule, what, "is planned as", pipeline["schedule"])
        session.check(pipeline["queues"] == queues, what, "has the queues", pipeline["queues"])
        session.check(pipeline["recompute"] == recompute, what, "recomputes", pipeline["recompute"])
        expected = {"linear": [0, 1, 2], "interleaved": [0, 1, 2] * per_device,
                    "v": ([0, 1, 2] + [2, 1, 0]) * 2}[placement][:3 * per_device]
        session.check(pipeline["stage_device"] == expected, what, "places stages at", pipeline["stage_device"])
        session.check(len(p["replicas"]) == dp, what, "has", len(p["replicas"]), "replicas")
        session.check(sorted(p["source_rows"]) == list(range(60)), what, "plans the rows", p["source_rows"])


def depths():
    for model, layers in (("gpt.json", 9), ("t5.json", 11)):
        for pp in range(1, layers + 1):
            p = plan("%s over %d devices" % (model, pp), "--pp", pp, "--batch-tokens", 6000, "--batch", 1,
                     lengths="sixty.csv", model=model, cluster="slow.json")
            if p is not None:
                session.check(p["pipeline"]["devices"] == pp, model, "has not", pp, "devices")


def presets():
    for model, pp, tp in (("gpt-6.7b", 4, 1), ("gpt-13b", 8, 1), ("gpt-29b", 16, 1), ("t5-5.5b", 4, 1),
                          ("t5-11b", 2, 8), ("t5-22b", 4, 8), ("t5-44b", 8, 4), ("llama-2-7b", 4, 2),
                          ("llama-3-8b", 4, 1), ("llama-3-70b", 16, 4), ("qwen2.5-7b", 4, 1), ("gpt-3.35b", 3, 1)):
        for cluster in ("a100-80g", "h200") if model != "gpt-3.35b" else ("a100-40g", "h100"):
            what = "%s on %s" % (model, cluster)
            p = plan(what, "--pp", pp, "--tp", tp, model=model, cluster=cluster)
            if p is None:
                continue
            # Written out as files, both give the same plan, byte for byte.
            session.write("model.json", json.dumps(p["provenance"]["model"]))
            session.write("cluster.json", json.dumps(p["provenance"]["cluster"]))
            name = made[-1][0]
            again = session.plan("--pp", pp, "--tp", tp, "--out", "again.json", model="model.json",
                                 cluster="cluster.json")
            if session.succeeded(again, what, "from files"):
                session.check(session.read("again.json") == session.read(name), what, "from files differs")


def few_samples():
    one = session.write("one.csv", HEADER + "qa,1,1\n")
    for model, arguments in (("gpt-3.35b", ("--pp", 4)), ("t5-11b", ("--pp", 2, "--tp", 8)), ("gpt-3.35b", ())):
        p = plan("one sample, " + model, *arguments, lengths=one, model=model)
        if p is not None:
            session.check(len(p["lengths"]) == 1, "one sample has lengths", p["lengths"])
    for model, arguments in (("gpt-3.35b", ("--pp", 2)), ("t5-11b", ("--tp", 8))):
        p = plan("more replicas than samples, " + model, *arguments, "--dp", 9, model=model)
        if p is None:
            continue
        batches = [mb for replica in p["replicas"] for mb in replica["micro_batches"]]
        session.check(all(replica["micro_batches"] for replica in p["replicas"]), model, "has a replica without work")
        session.check(sum(mb["dummy"] for mb in batches) >= 9 - ROWS, model, "has too few dummies")
        session.check(sum(len(row) for mb in batches for row in mb["samples"]) == ROWS, model, "plans not every sample")
    plan("more devices than samples", "--pp", 16, "--batch-samples", 2)
    plan("more devices and replicas than samples", "--pp", 16, "--dp", 3, "--batch-samples", 1, "--batch", ROWS - 1)
    equal = session.write("equal.csv", HEADER + "qa,500,12\n" * 64)
    plan("equal samples", "--pp", 4, "--dp", 2, lengths=equal)
    for limit in ("36000MB", "35GiB", "34000000000"):
        p = plan("under " + limit, "--pp", 2, "--memory-limit", limit)
        if p is not None:
            capacity = {"36000MB": 36 * 10**9, "35GiB": 35 << 30}.get(limit, 34 * 10**9)
            for device in p["replicas"][0]["devices"]:
                session.check(device["capacity_bytes"] == capacity, limit, "is", device["capacity_bytes"], "bytes")
                session.check(device["peak_bytes"] <= capacity, limit, "is exceeded:", device["peak_bytes"])


def judge():
    session.check(len(made) > 75, "only", len(made), "plans were made")
    names = [name for name, _ in made]
    done = session.run("check", *names)
    session.succeeded(done, "check of all plans")
    holds = done.stdout.decode().splitlines()
    session.check(len(holds) == len(names) and all(": holds: " in line for line in holds), "check says", holds[:3])
    checker = session.source.parent / "shared" / "tools" / "check_plan.py"
    if checker.exists():
        done = subprocess.run([sys.executable, "-B", str(checker), *names], cwd=session.folder, capture_output=True,
                              text=True)
        session.check(done.returncode == 0, "the independent checker exits", done.returncode,
                      [line for line in done.stdout.splitlines() if "FAULT" in line][:3], done.stderr[:300])
    else:
        print("no independent checker beside", session.source)


def verdicts():
    good = session.read(made[0][0])
    broken = json.loads(good)
    broken["predicted_ns"] += 1
    session.write("broken.json", json.dumps(broken))
    del broken["replicas"]
    session.write("malformed.json", json.dumps(broken))
    for files, status in (((made[0][0],), 0), (("broken.json",), 1), (("malformed.json",), 1),
                          ((made[0][0], "broken.json"), 1), (("broken.json", made[0][0]), 1),
                          (("broken.json", "nowhere.json"), 2), (("nowhere.json", made[0][0]), 2)):
        done = session.run("check", *files)
        session.check(done.returncode == status, "check of", files, "exits", done.returncode, "and not", status)
        lines = done.stdout.decode().splitlines()
        verdict = {"broken.json": "FAULT: ", "malformed.json": "FAULT: malformed", made[0][0]: "holds: "}
        for name in set(files) & set(verdict):
            begins = name + ": " + verdict[name]
            session.check(any(line.startswith(begins) for line in lines), "check of", files, "says", lines)


small_models()
every_kind()
depths()
presets()
few_samples()
judge()
verdicts()
session.close()
