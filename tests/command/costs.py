"""Profiles and costs on the command line: `fit`, `cost`, and `plan` with them. python3 costs.py DYNAPIPE SOURCE_DIR"""

import json
import sys

from command import Session

ROWS = [1, 2, 4, 8, 16, 32]
LENGTHS = [16, 64, 256, 1024, 4096]


def point(kind, recompute, rows, length, scale=1.0, **more):
    tokens, squares = rows * length, rows * length * length
    forward = max(200_000, round(scale * (50_000 + 600 * tokens + 0.02 * squares)))
    again = {"none": 0, "selective": 0, "full": 1}[recompute]
    stored = 8192 * tokens if recompute == "full" else 140_000 * tokens
    return {"kind": kind, "recompute": recompute, "rows": rows, "input": length, "forward_ns": forward,
            "backward_ns": 2 * forward + again * forward, "stored_bytes": stored,
            "forward_peak_bytes": stored + 40_000 * tokens, "backward_peak_bytes": 160_000 * tokens, **more}


def profile(**changes):
    """A layer of gpt-3.35b's width, measured as far as 32,768 tokens."""
    points = [point(kind, recompute, rows, length, 1.5 if kind == "head" else 1.0)
              for kind in ("decoder", "head") for recompute in ("none", "full")
              for rows in ROWS for length in LENGTHS if rows * length <= 32_768]
    return {"format": "dynapipe.profile", "version": 1, "device": "made up", "dtype": "bf16", "tensor_parallel": 1,
            "layer": {"hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 16384, "gated": False},
            "parameters_bytes": {"embedding": 419_430_400, "decoder": 402_653_184}, "points": points,
            "links": [{"place": "intra_node", "bytes": size, "ns": 10_000 + size // 25} for size in (1 << 16, 1 << 24)],
            **changes}


def fitting(s):
    s.write("profile.json", json.dumps(profile()))
    done = s.run("fit", "profile.json", "-o", "costs.json", "--plot", "fit.svg")
    if not s.succeeded(done, "fit"):
        return
    text = done.stdout.decode()
    s.check("decoder       none      forward_ns" in text and "link: intra_node" in text, "fit prints", text[:300])
    costs = json.loads(s.read("costs.json"))
    worst = max(curve["error"]["mean"] for curve in costs["curves"] if curve["kind"] == "decoder")
    s.check(worst < 1e-3, "exact data are fitted within", worst)
    s.check(s.read("fit.svg").startswith(b"<svg") and s.read("fit.svg").endswith(b"</svg>\n"), "fit.svg is a drawing")
    as_json = s.run("fit", "profile.json", "--json")
    s.check(as_json.stdout == s.read("costs.json"), "--json prints the costs file")
    again = s.run("fit", "profile.json", "-o", "costs2.json")
    s.succeeded(again, "fit again")
    s.check(s.read("costs2.json") == s.read("costs.json"), "equal profiles give equal costs")


def costs_of(s, *words):
    done = s.run("cost", "--model", "gpt-3.35b", "--cluster", "a100-80g", "--summary", "json", *words)
    s.succeeded(done, "cost", *words)
    return json.loads(done.stdout)


def pricing(s):
    for recompute in ("none", "full"):
        for rows, length in ((4, 256), (1, 4096), (32, 1024)):
            measured = point("decoder", recompute, rows, length)
            [answer] = costs_of(s, "--profile", "profile.json", "--recompute", recompute, "--shape", f"{rows}x{length}")
            layer = next(layer for layer in answer["layers"] if layer["kind"] == "decoder")
            for field in ("forward_ns", "backward_ns", "stored_bytes", "forward_peak_bytes", "backward_peak_bytes"):
                off = layer[field] / measured[field] - 1
                s.check(abs(off) < 1e-5, field, "at a measured point", rows, length, layer[field], measured[field])
    [beyond] = costs_of(s, "--profile", "profile.json", "--shape", "1x8192")
    decoder = next(layer for layer in beyond["layers"] if layer["kind"] == "decoder")
    s.check("--outside fitted" in decoder.get("refused", ""), "outside of the profile:", decoder)
    [fitted] = costs_of(s, "--profile", "profile.json", "--outside", "fitted", "--shape", "1x8192")
    decoder = next(layer for layer in fitted["layers"] if layer["kind"] == "decoder")
    truth = point("decoder", "none", 1, 8192)["forward_ns"]
    s.check(decoder["extrapolated"] and abs(decoder["forward_ns"] / truth - 1) < 0.01, "extrapolates", decoder)
    two = costs_of(s, "--costs", "costs.json", "--shape", "2x100", "--shape", "1x8192")
    s.check(len(two) == 2 and two[1]["layers"][1]["extrapolated"] and not two[0]["layers"][1]["extrapolated"],
            "fitted costs say where they extrapolate", two)
    [t5] = json.loads(s.run("cost", "--model", "t5-11b", "--cluster", "h200", "--shape", "2x64+16", "--summary",
                            "json").stdout)
    s.check([layer["kind"] for layer in t5["layers"]] == ["embedding", "encoder", "cross_decoder", "head"], "t5", t5)


def planning(s):
    flags = ("--batch-samples", 6, "--pp", 2, "--dp", 2)
    for costs in (("--profile", "profile.json"), ("--costs", "costs.json")):
        done = s.plan(*flags, *costs, "--out", "plan.json")
        if not s.succeeded(done, "plan", *costs):
            continue
        s.succeeded(s.run("check", "plan.json"), "check of a plan with", *costs)
        provenance = json.loads(s.read("plan.json"))["provenance"]
        s.check("made up" in provenance["costs"]["source"], "the plan names its costs", provenance["costs"])
        s.check(provenance["options"].get(costs[0][2:]) == costs[1], "the plan names its file", provenance["options"])
    s.write("long.csv", "task,input_tokens,target_tokens\na,6000,10\nb,100,10\n")
    s.refused(s.plan("--batch-samples", 2, "--pp", 2, "--profile", "profile.json", lengths="long.csv"),
              ["6009 tokens", "data row 0", "--outside fitted"], "a sample that is longer than what was measured")
    done = s.plan("--batch-samples", 2, "--pp", 2, "--profile", "profile.json", "--outside", "fitted", "--recompute",
                  "full", "--out", "far.json", lengths="long.csv")
    if s.succeeded(done, "plan --outside fitted"):
        options = json.loads(s.read("far.json"))["provenance"]["options"]
        s.check(options.get("extrapolated_micro_batches", "").startswith("1 of"), "the plan says so", options)


def damaged(change):
    made = profile()
    change(made["points"][3])
    return json.dumps(made)


def bad_input(s):
    cases = [
        ("negative", lambda p: p.update(forward_ns=-5), ["points[3]", "forward_ns", "-5"]),
        ("zero", lambda p: p.update(backward_ns=0), ["points[3]", "backward_ns"]),
        ("nan", lambda p: p.update(forward_ns=float("nan")), ["no JSON"]),
        ("fraction", lambda p: p.update(forward_ns=1.5), ["points[3]", "forward_ns", "1.5"]),
        ("unit", lambda p: p.update(forward_ns=10**12), ["points[3]", "nanoseconds"]),
        ("mixed", lambda p: p.update(device="another"), ["points[3]", "mixed devices", "another"]),
    ]
    for name, change, words in cases:
        s.write("bad.json", damaged(change))
        s.refused(s.run("fit", "bad.json", "-o", "never.json"), ["bad.json", *words], "fit of", name)
    twice = profile()
    twice["points"].append({**twice["points"][2], "forward_ns": 2 * twice["points"][2]["forward_ns"]})
    s.write("bad.json", json.dumps(twice))
    s.refused(s.run("fit", "bad.json", "-o", "never.json"), ["points[2]", "20 %"], "duplicates that disagree")
    s.write("bad.json", json.dumps(profile(points=profile()["points"][:1])))
    s.refused(s.run("fit", "bad.json", "-o", "never.json"), ["one point"], "a single point")
    s.write("bad.json", json.dumps(profile(points=[])))
    s.refused(s.run("fit", "bad.json", "-o", "never.json"), ["no points"], "no point")
    s.check("never.json" not in s.files(), "nothing is written for a bad profile")
    s.refused(s.run("fit", "nowhere.json"), ["nowhere.json"], "a missing profile")
    s.refused(s.run("fit", "nowhere_time.csv"), ["nowhere_time.csv"], "missing tables")
    s.refused(s.run("fit", "profile.json", "--tp", 2), ["tensor_parallel 1", "--tp is 2"], "another degree")
    s.refused(s.run("fit", "profile.json", "--degree", 4), ["--degree"], "degree 4")
    s.refused(s.plan("--batch-samples", 2, "--tp", 2, "--profile", "profile.json"), ["tensor_parallel 1", "--tp is 2"],
              "a plan with another degree")
    s.refused(s.plan("--batch-samples", 2, "--profile", "profile.json", model="gpt-13b"), ["hidden 4096", "5120"],
              "a plan of another width")
    s.refused(s.plan("--batch-samples", 2, "--profile", "profile.json", "--recompute", "selective"),
              ["selective", "--recompute"], "a recomputation that was not measured")
    s.refused(s.plan("--batch-samples", 2, "--profile", "profile.json", "--costs", "costs.json"), ["--costs"],
              "both kinds of costs")
    for shape in ("8", "8x", "x8", "0x8", "8x-1", "8x8+8", "axb", "8x99999999999"):
        s.refused(s.run("cost", "--model", "gpt-3.35b", "--cluster", "h200", "--shape", shape), ["--shape", shape],
                  "shape", shape)
    s.refused(s.run("cost", "--model", "t5-11b", "--cluster", "h200", "--shape", "2x64"), ["target"], "no target")


if __name__ == "__main__":
    session = Session(sys.argv)
    fitting(session)
    pricing(session)
    planning(session)
    bad_input(session)
    session.close()
