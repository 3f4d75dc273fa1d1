"""Runs shared_baselines on the data beside the checkout: python3 shared_baselines.py PROGRAM SOURCE_DIR; exit status 77
(skipped) where there is none."""

import pathlib
import subprocess
import sys

program, source = sys.argv[1:3]
folder = pathlib.Path(source).resolve().parent / "shared/data"
for needed in ("profiles/a100_gpt_6.7b_time.csv", "lengths/flan_like.csv.gz"):
    if not (folder / needed).is_file():
        print(f"no {folder / needed}: skipped")
        sys.exit(77)
sys.exit(subprocess.run([program, str(folder)]).returncode)
