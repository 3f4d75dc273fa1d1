"""Fails when the umbrella header costs too much: python3 compile_time.py --limit SECONDS -- COMPILER ARGUMENT...

What counts is the processor time of the compiler (user and system, its children's too) for a file that includes
dynapipe/dynapipe.hpp, above that for an empty file; the least of several runs each, so that other work on the machine
does not count. Rounds go on beyond the fifth while the limit is not met.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROUNDS, MOST_ROUNDS = 5, 15


def processor_seconds(command):
    before = os.times()
    subprocess.run(command, check=True)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("compiler", nargs="+")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        empty, umbrella = pathlib.Path(folder, "empty.cpp"), pathlib.Path(folder, "umbrella.cpp")
        empty.write_text("")
        umbrella.write_text("#include <dynapipe/dynapipe.hpp>\n")
        compile_only = [*options.compiler, "-w", "-c", "-o", os.path.join(folder, "out.o")]

        base = cost = float("inf")
        for done in range(1, MOST_ROUNDS + 1):
            base = min(base, processor_seconds([*compile_only, str(empty)]))
            cost = min(cost, processor_seconds([*compile_only, str(umbrella)]))
            if done >= ROUNDS and cost - base <= options.limit:
                break

    print(f"empty file {base:.2f} s, umbrella {cost:.2f} s, difference {cost - base:.2f} s, limit {options.limit} s")
    return 0 if cost - base <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
