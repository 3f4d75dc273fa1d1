"""Reads the includes of the sources below ROOT and reports what breaks the rules of the house: python3 layers.py ROOT

- A header includes only its own folder and folders to the left of it; `ext` may include all of them.
- A door, <dynapipe/FOLDER.hpp>, includes all headers of its folder and nothing else, but for those in no door: what
  planning does not need is paid for by who names it. <dynapipe/dynapipe.hpp> includes all doors but that of `exec`. No
  header includes the umbrella.
- Outside ext/, headers use the cheap standard headers only, and never ext/.
- The validator judges plans without the code that makes them.
- No header includes itself by way of others.
- No file is longer than 500 lines.
"""

import pathlib
import re
import sys

FOLDERS = ["core", "cost", "batch", "schedule", "comm", "plan", "exec"]
SEES = {folder: set(FOLDERS[: at + 1]) for at, folder in enumerate(FOLDERS)}
SEES["context"] = {"core", "cost", "comm", "context"}
SEES["ext"] = {*FOLDERS, "context", "ext"}
# Data that a folder may read in one to the right of it.
DATA = {"context": {"plan/plan.hpp"}}

# Headers in no door.
NO_DOOR = {
    *("batch/" + name for name in ("arrange.hpp", "baselines.hpp", "deal.hpp", "order.hpp", "overlong.hpp",
                                   "pack.hpp", "partition_bound.hpp", "published.hpp", "range_partition.hpp",
                                   "rows.hpp", "shape_budget.hpp", "spread.hpp", "tour.hpp", "tour_search.hpp",
                                   "weights.hpp")),
    *("batch/pack_" + name for name in ("bound.hpp", "classes.hpp", "exact.hpp", "fill.hpp", "groups.hpp",
                                        "problem.hpp", "ranks.hpp", "refine.hpp", "solve.hpp", "together.hpp")),
    *("batch/shape_budget_" + name for name in ("chain.hpp", "exact.hpp", "sets.hpp", "times.hpp")),
    *("batch/spread_" + name for name in ("bound.hpp", "exact.hpp", "problem.hpp", "refine.hpp", "start.hpp", "steps.hpp")),
    *("comm/" + name for name in ("certify.hpp", "deadlock.hpp", "rank_order.hpp", "rank_program.hpp")),
    *("cost/" + name for name in ("balanced_split.hpp", "fitted.hpp", "memory.hpp", "profile.hpp", "profile_sound.hpp",
                                  "table.hpp", "table_grid.hpp")),
    *("plan/" + name for name in ("digest.hpp", "validate.hpp", "validate_batch.hpp", "validate_memory.hpp",
                                  "validate_program.hpp", "validate_time.hpp", "varlen.hpp", "violation.hpp")),
}  # fmt: skip

# What the validator must not reach: where plans are made. The folders' data headers are not among it.
MAKERS = re.compile(r"(batch|schedule|comm|plan)/(?!(kinds|sample|plan|violation|validate\w*)\.hpp$)")

CHEAP = set(
    """algorithm array bit cassert cctype cerrno charconv climits cmath compare concepts cstddef cstdint cstdlib cstring
    deque exception initializer_list iterator limits map new numbers numeric optional queue set source_location span
    stdexcept string string_view system_error tuple type_traits unordered_map unordered_set utility variant vector
    version""".split()
)

WITH_SOURCES = ["include", "cuda", "examples", "tests", "bench", "docs", "packaging"]
MAY_USE_EXT = {"cuda", "examples", "tests", "bench"}
SOURCE = {".hpp", ".h", ".cpp", ".cu", ".cuh", ".py", ".sh"}
MOST_LINES = 500

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def includes_of(path):
    return [(mark == '"', name) for mark, name in INCLUDE.findall(path.read_text(encoding="utf-8"))]


def sources(root):
    for top in WITH_SOURCES:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCE and path.is_file():
                yield path


def place(header):
    """The folder of a header, and whether it is the folder's door. The umbrella is its own folder, ''."""
    head, _, rest = header.partition("/")
    if rest:
        return head, False
    return ("", True) if header == "dynapipe.hpp" else (head.removesuffix(".hpp"), True)


def check_header(header, includes):
    """Problems of one public header, `header` relative to include/dynapipe."""
    folder, door = place(header)
    if folder and folder not in SEES:
        return [f"'{folder}' is no folder of the library"]
    problems = []
    for quoted, name in includes:
        if quoted:
            problems.append(f'includes "{name}": public headers are included as <dynapipe/...>')
            continue
        if not name.startswith("dynapipe/"):
            if folder != "ext" and name not in CHEAP:
                problems.append(f"includes <{name}>, which is not among the cheap standard headers")
            continue
        target = name.removeprefix("dynapipe/")
        target_folder, target_door = place(target)
        if target == "dynapipe.hpp":
            problems.append("includes the umbrella")
        elif door and folder and (target_folder != folder or target_door):
            problems.append(f"is a door and includes <{name}>, which is not in its folder")
        elif not door and target_door and target_folder == folder:
            problems.append("includes the door of its own folder")
        elif folder and target_folder not in SEES[folder] and target not in DATA.get(folder, ()):
            problems.append(f"includes <{name}>: {folder} does not see {target_folder}")
    return problems


def check_doors(graph):
    """Problems of the doors; `graph` has the dynapipe includes of every public header."""
    problems = []
    folders = sorted({place(header)[0] for header in graph} - {"", "ext"})
    for folder in folders:
        door = f"{folder}.hpp"
        inside = {header for header in graph if header.startswith(folder + "/")}
        missing = sorted(inside - NO_DOOR - set(graph.get(door, ())))
        problems += [f"{door}: does not include <dynapipe/{header}>" for header in missing]
        problems += [f"{door}: includes <dynapipe/{header}>, which is in no door"
                     for header in sorted(NO_DOOR & set(graph.get(door, ())))]
    wanted = {f"{folder}.hpp" for folder in folders} - {"exec.hpp"}
    found = set(graph.get("dynapipe.hpp", ()))
    problems += [f"dynapipe.hpp: does not include <dynapipe/{door}>" for door in sorted(wanted - found)]
    problems += [f"dynapipe.hpp: includes <dynapipe/{other}>" for other in sorted(found - wanted)]
    return problems


def reach(graph, start):
    """All headers that `start` includes, by way of others too."""
    seen, todo = set(), list(graph.get(start, ()))
    while todo:
        header = todo.pop()
        if header not in seen:
            seen.add(header)
            todo += graph.get(header, ())
    return seen


def check(root):
    problems, graph = [], {}
    for path in sources(root):
        where = path.relative_to(root)
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES:
            problems.append(f"{where}: {lines} lines, more than {MOST_LINES}")
        includes = includes_of(path)
        if where.parts[0] == "include":
            header = path.relative_to(root / "include" / "dynapipe").as_posix()
            problems += [f"{where}: {problem}" for problem in check_header(header, includes)]
            graph[header] = [
                name.removeprefix("dynapipe/") for _, name in includes if name.startswith("dynapipe/")
            ]
        elif where.parts[0] not in MAY_USE_EXT:
            problems += [f"{where}: uses <{name}>" for _, name in includes if name.startswith("dynapipe/ext/")]

    problems += check_doors(graph)
    for header in sorted(graph):
        reached = reach(graph, header)
        if header in reached:
            problems.append(f"{header}: includes itself, by way of others")
        if re.fullmatch(r"plan/validate\w*\.hpp", header):
            problems += [f"{header}: the validator reaches <dynapipe/{h}>" for h in sorted(reached) if MAKERS.match(h)]
    return problems, len(graph)


def main(root):
    problems, headers = check(pathlib.Path(root))
    for problem in problems:
        print(problem)
    print(f"{headers} headers, {len(problems)} problems")
    return 1 if problems or not headers else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
