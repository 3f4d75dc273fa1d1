"""Fails when costs depend on compiler flags: python3 same_numbers.py -- COMPILER ARGUMENT...

exact_probe.cpp, compiled without optimisation and with everything that may change floating-point results, must print
the same.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

FLAGS = [["-O0"], ["-O3", "-march=native", "-ffast-math"], ["-O2", "-ffp-contract=off"]]


def main():
    compiler = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    if not compiler:
        print(__doc__)
        return 2
    here = pathlib.Path(__file__).resolve().parent
    outputs = []
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "probe")
        for flags in FLAGS:
            source = [str(here / "exact_probe.cpp"), "-std=c++20", "-I", str(here.parent.parent / "include")]
            subprocess.run([*compiler, *source, *flags, "-o", program], check=True)
            outputs.append(subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines())
    if len(outputs[0]) < 100:
        print(f"the probe prints {len(outputs[0])} lines only")
        return 1
    wrong = 0
    for flags, lines in zip(FLAGS[1:], outputs[1:]):
        for expected, got in zip(outputs[0], lines):
            if expected != got:
                print(f"{' '.join(FLAGS[0])}: {expected}\n{' '.join(flags)}: {got}")
                wrong += 1
        wrong += len(lines) != len(outputs[0])
    print(f"{len(outputs[0])} digests under {len(FLAGS)} sets of flags: {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
