"""layers.py accepts a sound tree and finds each kind of fault in one that is not."""

import pathlib
import tempfile
import unittest

import layers

SOUND = {
    "include/dynapipe/dynapipe.hpp": ["dynapipe/core.hpp", "dynapipe/cost.hpp", "dynapipe/plan.hpp"],
    "include/dynapipe/core.hpp": ["dynapipe/core/units.hpp"],
    "include/dynapipe/core/units.hpp": ["cstdint"],
    "include/dynapipe/cost.hpp": ["dynapipe/cost/model.hpp"],
    "include/dynapipe/cost/model.hpp": ["string", "dynapipe/core/units.hpp"],
    "include/dynapipe/plan.hpp": ["dynapipe/plan/plan.hpp", "dynapipe/plan/planner.hpp"],
    "include/dynapipe/plan/plan.hpp": ["dynapipe/cost/model.hpp"],
    "include/dynapipe/plan/planner.hpp": ["dynapipe/plan/plan.hpp", "dynapipe/cost.hpp"],
    "include/dynapipe/plan/validate.hpp": ["dynapipe/plan/plan.hpp"],
    "include/dynapipe/ext/json.hpp": ["iostream", "nlohmann/json.hpp", "dynapipe/plan/plan.hpp"],
    "examples/main.cpp": ["iostream", "dynapipe/ext/json.hpp"],
}

# name: (file, its includes, what the report must say)
FAULTS = {
    "arrow back": ("core/units.hpp", ["dynapipe/cost/model.hpp"], "core does not see cost"),
    "arrow back to a door": ("cost/model.hpp", ["dynapipe/plan.hpp"], "cost does not see plan"),
    "ext from inside": ("plan/plan.hpp", ["dynapipe/ext/json.hpp"], "plan does not see ext"),
    "umbrella from inside": ("plan/plan.hpp", ["dynapipe/dynapipe.hpp"], "includes the umbrella"),
    "own door": ("cost/model.hpp", ["dynapipe/cost.hpp"], "door of its own folder"),
    "dear header": ("cost/model.hpp", ["iostream"], "<iostream>, which is not among the cheap"),
    "package": ("cost/model.hpp", ["fmt/core.h"], "<fmt/core.h>, which is not among the cheap"),
    "door lacks a header": ("plan.hpp", ["dynapipe/plan/plan.hpp"], "does not include <dynapipe/plan/planner.hpp>"),
    "door leads elsewhere": ("core.hpp", ["dynapipe/cost/model.hpp"], "which is not in its folder"),
    "umbrella lacks a door": ("dynapipe.hpp", ["dynapipe/core.hpp"], "does not include <dynapipe/plan.hpp>"),
    "umbrella opens ext": ("dynapipe.hpp", ["dynapipe/ext/json.hpp"], "dynapipe.hpp: includes <dynapipe/ext/json.hpp>"),
    "validator uses the maker": ("plan/validate.hpp", ["dynapipe/plan/planner.hpp"], "validator reaches"),
    "unknown folder": ("misc/a.hpp", [], "'misc' is no folder"),
    "circle": ("plan/plan.hpp", ["dynapipe/plan/planner.hpp"], "plan/plan.hpp: includes itself"),
}


def problems_of(files, long_file=None):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, includes in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"#include <{include}>\n" for include in includes))
        if long_file:
            (root / long_file).write_text("\n" * (layers.MOST_LINES + 1))
        return layers.check(root)[0]


class Layers(unittest.TestCase):
    def test_sound_tree(self):
        self.assertEqual(problems_of(SOUND), [])

    def test_faults(self):
        for name, (header, includes, report) in FAULTS.items():
            with self.subTest(name):
                problems = problems_of({**SOUND, f"include/dynapipe/{header}": includes})
                self.assertTrue(any(report in problem for problem in problems), problems)

    def test_ext_outside_the_library(self):
        problems = problems_of({**SOUND, "docs/page.cpp": ["dynapipe/ext/json.hpp"]})
        self.assertEqual(problems, ["docs/page.cpp: uses <dynapipe/ext/json.hpp>"])

    def test_long_file(self):
        self.assertEqual(problems_of(SOUND, "examples/main.cpp"), ["examples/main.cpp: 501 lines, more than 500"])


if __name__ == "__main__":
    unittest.main()
