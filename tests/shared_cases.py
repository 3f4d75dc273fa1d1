"""Runs the stored cases and real lengths beside the checkout, where they are there, against their independent judges.

python3 shared_cases.py CONFORMANCE DYNAPIPE SOURCE_DIR; exit status 77 (skipped) where there is no ../shared.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

conformance, dynapipe, source = sys.argv[1:4]
shared = pathlib.Path(source).resolve().parent / "shared"
cases, tools, lengths = shared / "data/cases", shared / "tools", shared / "data/lengths"
failures = []


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def expect(what, result, status=0):
    print(f"{what}: {(result.stdout + result.stderr).strip().splitlines()[-1:]}")
    if result.returncode != status:
        failures.append(what)


def judge(kind, file, judge_name, *limits):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as answers:
        answered = run(conformance, kind, cases / file)
        answers.write(answered.stdout)
        answers.flush()
        if answered.returncode != 0:
            failures.append(f"conformance {kind} exits {answered.returncode}")
        expect(f"{kind} {file}", run(sys.executable, tools / judge_name, cases / file, answers.name, *limits))


def plans(name, file, count, *flags):
    """Plans the first `count` global batches, and has both checkers look at them."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for batch in range(count):
            files.append(f"{folder}/{batch}.json")
            made = run(dynapipe, "plan", "--lengths", lengths / file, "--batch", batch, "--out", files[-1], *flags)
            if made.returncode != 0:
                expect(f"{name} batch {batch}", made)
                return
        expect(f"{name}: dynapipe check", run(dynapipe, "check", *files))
        expect(f"{name}: check_plan.py", run(sys.executable, tools / "check_plan.py", *files))


def main():
    if not cases.is_dir():
        print(f"no {shared}: skipped")
        return 77
    judge("deadlock", "deadlock.json", "judge_deadlock.py")
    stored = json.loads((cases / "deadlock.json").read_text())["cases"]
    answers = json.loads(run(conformance, "deadlock", cases / "deadlock.json").stdout)
    for case, answer in zip(stored, answers):
        free = case["free_of_order"]
        if (answer["safe_per_pair"], answer["safe_per_edge"]) != (free["peer"] == "ok", free["edge"] == "ok"):
            failures.append(f"safety classes of {case['name']}")
    judge("partition", "partition.json", "judge_partition.py")
    # Valid schedules and bounds; how close they come to the optimum is shown, and held where it is today.
    judge("schedule", "schedule_fb.json", "judge_schedule.py", 6, 40, 25)
    plans("flan_like, gpt-6.7b", "flan_like.csv.gz", 20, "--model", "gpt-6.7b", "--cluster", "a100-80g", "--pp", 4,
          "--dp", 2, "--tp", 1, "--batch-tokens", 65536)
    plans("leval, gpt-6.7b", "leval.csv", 20, "--model", "gpt-6.7b", "--cluster", "h200", "--pp", 8,
          "--batch-tokens", 131072, "--recompute", "selective")
    plans("flan_like, t5-11b", "flan_like.csv.gz", 5, "--model", "t5-11b", "--cluster", "a100-80g", "--pp", 4, "--dp", 2)
    table = shared / "data/profiles/a100_gpt_6.7b_time.csv"
    for degree in (1, 2, 4):
        plans(f"flan_like, gpt-6.7b as measured, tp {degree}", "flan_like.csv.gz", 5, "--model", "gpt-6.7b", "--cluster",
              "a100-40g", "--pp", 8, "--dp", 2, "--tp", degree, "--recompute", "full", "--outside", "fitted", "--profile",
              table)
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


sys.exit(main())
