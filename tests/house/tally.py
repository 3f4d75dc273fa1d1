"""Counts the results of `meson test`: python3 tally.py build/meson-logs/testlog.json

A program of doctest counts with its test cases, every other test as one. Prints "N passed, N failed" last; the exit
status is 0 when something passed and nothing failed.
"""

import json
import re
import sys

CASES = re.compile(r"test cases: +\d+ \| +(\d+) passed \| +(\d+) failed")
GOOD = {"OK", "EXPECTEDFAIL"}


def tally(lines):
    """(passed, failed, names of the skipped) of the log's lines, one JSON object each."""
    passed, failed, skipped = 0, 0, []
    for line in lines:
        test = json.loads(line)
        if test["result"] == "SKIP":
            skipped.append(test["name"])
            continue
        good = test["result"] in GOOD
        cases = CASES.search(re.sub(r"\x1b\[[\d;]*m", "", test.get("stdout") or ""))
        if cases is None:
            passed += good
            failed += not good
        else:
            passed += int(cases[1])
            # A program can fail although its cases pass, where a sanitizer speaks up or it ends badly.
            failed += max(int(cases[2]), not good)
    return passed, failed, skipped


def main(path):
    try:
        with open(path, encoding="utf-8") as log:
            passed, failed, skipped = tally(log)
    except FileNotFoundError:
        print("No test was run.")
        passed, failed, skipped = 0, 1, []
    if skipped:
        print(f"skipped: {', '.join(skipped)}")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
