"""Fails when the umbrella header costs too much: python3 compile_time.py --limit SECONDS -- COMPILER ARGUMENT...

What counts is the processor time of the compiler (user and system) for a file that includes dynapipe/dynapipe.hpp,
above that for an empty file; the least of several runs each, so that other work on the machine counts little. Where the
limit is missed by less than a half, more rounds are run before it counts as missed.

The standard headers that dynapipe uses are measured with it, as a yardstick: where they alone cost more than
USUAL_STANDARD seconds, the machine is slow or busy, and the limit grows in proportion.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROUNDS, MOST_ROUNDS = 5, 15
USUAL_STANDARD = 0.45

STANDARD = "algorithm array charconv cmath concepts cstdint optional span stdexcept string string_view tuple vector"
SOURCES = {
    "empty": "",
    "standard": "".join(f"#include <{header}>\n" for header in STANDARD.split()),
    "umbrella": "#include <dynapipe/dynapipe.hpp>\n",
}


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

    least = dict.fromkeys(SOURCES, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in SOURCES.items():
            pathlib.Path(folder, f"{name}.cpp").write_text(text)
        for done in range(1, MOST_ROUNDS + 1):
            for name in SOURCES:
                source, target = os.path.join(folder, f"{name}.cpp"), os.path.join(folder, "out.o")
                seconds = processor_seconds([*options.compiler, "-w", "-c", source, "-o", target])
                least[name] = min(least[name], seconds)
            cost = least["umbrella"] - least["empty"]
            standard = least["standard"] - least["empty"]
            limit = options.limit * max(1.0, standard / USUAL_STANDARD)
            if done >= ROUNDS and not limit < cost < 1.5 * limit:
                break

    print(f"above an empty file: umbrella {cost:.2f} s (limit {limit:.2f} s), standard headers {standard:.2f} s")
    return 0 if cost <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
