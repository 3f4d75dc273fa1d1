"""python3 headers_listed.py INCLUDE_ROOT HEADER...: fails unless the headers on disk are those in the build's list."""

import pathlib
import sys


def main(root, *listed):
    root = pathlib.Path(root)
    on_disk = {path.relative_to(root).as_posix() for path in root.rglob("*.hpp")}
    missing = sorted(on_disk - set(listed))
    for header in missing:
        print(f"{header} is missing in include/meson.build")
    print(f"{len(on_disk)} headers on disk, {len(listed)} in the list")
    return 1 if missing or not on_disk else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
