"""Measures what the umbrella header costs to include: python3 compile_time.py --target SECONDS --guard RATIO -- COMPILER ...

What counts is the processor time of the compiler (user and system) for a file that includes dynapipe/dynapipe.hpp,
above that for an empty file; the least of several runs each, so that other work on the machine counts little. The
standard headers that dynapipe uses are measured with it, as a yardstick.

It prints whether the target is met, and fails where the umbrella costs more than RATIO times the standard headers: that
does not depend on the machine, and keeps what has been reached.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROUNDS, MOST_ROUNDS = 5, 15

STANDARD = "algorithm array concepts cstdint optional span stdexcept string string_view tuple vector"
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
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--guard", type=float, required=True)
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
            if done >= ROUNDS and cost <= options.guard * standard:
                break

    verdict = "met" if cost <= options.target else "missed"
    print(f"above an empty file: umbrella {cost:.2f} s (target {options.target} s: {verdict}), "
          f"standard headers {standard:.2f} s, ratio {cost / standard:.2f} (guard {options.guard})")
    return 0 if cost <= options.guard * standard else 1


if __name__ == "__main__":
    sys.exit(main())
