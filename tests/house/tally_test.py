"""tally.py counts cases of doctest, other tests, and programs that die."""

import json
import unittest

from tally import tally

SUMMARY = "[doctest] test cases:  7 |  {} passed | {} failed | 0 skipped"


def log(*tests):
    return [json.dumps({"name": name, "result": result, "stdout": stdout}) for name, result, stdout in tests]


class Tally(unittest.TestCase):
    def test_plain_tests(self):
        lines = log(("a", "OK", ""), ("b", "EXPECTEDFAIL", ""), ("c", "FAIL", ""), ("d", "TIMEOUT", "x"))
        self.assertEqual(tally(lines), (2, 2, []))

    def test_a_line_that_compiles_but_should_not_fails(self):
        self.assertEqual(tally(log(("a", "UNEXPECTEDPASS", ""))), (0, 1, []))

    def test_cases_of_doctest(self):
        self.assertEqual(tally(log(("unit", "OK", SUMMARY.format(7, 0)))), (7, 0, []))
        self.assertEqual(tally(log(("unit", "FAIL", SUMMARY.format(5, 2)))), (5, 2, []))

    def test_a_program_that_fails_with_all_cases_passed(self):
        self.assertEqual(tally(log(("unit", "FAIL", SUMMARY.format(7, 0)))), (7, 1, []))

    def test_a_program_that_dies_before_its_summary(self):
        self.assertEqual(tally(log(("unit", "FAIL", "[doctest] started"))), (0, 1, []))

    def test_skipped(self):
        self.assertEqual(tally(log(("gpu", "SKIP", ""))), (0, 0, ["gpu"]))


if __name__ == "__main__":
    unittest.main()
