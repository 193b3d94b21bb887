"""`make test` repeats a few failures alone, tells of them, and is not red for a busy machine; nor green for a bug."""

import suites
from suites import CHECK, MOST_AGAIN, Result

GOOD = Result(0, "20 passed in 3.00s")
FAILED = "FAILED tests/a.py::test_one - AssertionError: why - so"
ERROR = "ERROR tests/a.py::test_two - TimeoutError"
BAD = Result(1, "2 failed, 18 passed in 3.00s", (FAILED, ERROR))


def test_every_file_of_tests_is_in_one_run() -> None:
    given = [suites.ROOT / path for name in suites.RUNS for path in suites.paths(name)]
    files = [file for path in given for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    assert sorted(files) == sorted(suites.ROOT.glob("tests/**/test_*.py"))
    assert sorted(suites.ORDER) == sorted([CHECK, *suites.RUNS])


def test_a_failure_is_known_by_its_test_and_reported_with_its_reason() -> None:
    assert BAD.failed == {"tests/a.py::test_one": "AssertionError: why - so", "tests/a.py::test_two": "TimeoutError"}


def test_a_test_that_failed_and_could_not_be_ended_either_is_one_test() -> None:
    both = Result(1, "", ("FAILED tests/a.py::test_one - first", "ERROR tests/a.py::test_one - second"))
    assert both.failed == {"tests/a.py::test_one": "first"}
    assert both.causes == 1


def test_what_tests_of_a_file_share_fails_once_for_all_of_them() -> None:
    lines = tuple(f"ERROR tests/{file}.py::test_{n} - AssertionError: the router" for file in "ab" for n in range(12))
    shared = Result(1, "24 errors in 3.00s", lines)
    assert len(shared.failed) == 24
    assert shared.causes == 2
    assert suites.worth_repeating({"processes": shared}) == ["processes"]
    assert BAD.causes == 2


def test_runs_with_failed_tests_are_repeated_and_a_failed_check_is_not() -> None:
    results = {CHECK: Result(2, ""), "unit": GOOD, "processes": BAD}
    assert suites.worth_repeating(results) == ["processes"]
    assert suites.exit_code(results, {"processes": GOOD}) == 2


def test_a_run_that_pytest_itself_did_not_get_through_is_not_repeated() -> None:
    for code in (2, 3, 4, 5, -9):
        results = {"processes": Result(code, "", BAD.failures)}
        assert suites.worth_repeating(results) == []
        assert suites.exit_code(results, {}) == abs(code)


def test_many_failures_are_not_repeated_wherever_they_are() -> None:
    lines = tuple(f"FAILED tests/a.py::test_{number} - why" for number in range(MOST_AGAIN))
    assert suites.worth_repeating({"processes": Result(1, "", lines)}) == ["processes"]
    results = {"processes": Result(1, "", lines), "cluster": BAD}
    assert suites.worth_repeating(results) == []
    assert suites.exit_code(results, {}) == 1


def test_what_passes_alone_is_no_failure_and_is_named() -> None:
    assert suites.exit_code({"processes": BAD, "unit": GOOD}, {"processes": GOOD}) == 0
    assert suites.passed_alone(BAD, GOOD) == BAD.failed


def test_what_fails_again_is_a_failure_and_only_the_rest_passed_alone() -> None:
    again = Result(1, "1 failed, 1 passed in 1.00s", (ERROR,))
    assert suites.exit_code({"processes": BAD}, {"processes": again}) == 1
    assert suites.passed_alone(BAD, again) == {"tests/a.py::test_one": "AssertionError: why - so"}


def test_a_repetition_that_did_not_get_through_says_nothing_of_any_test() -> None:
    for code in (2, 3, 4, 5, -9):
        again = Result(code, "")
        assert suites.exit_code({"processes": BAD}, {"processes": again}) == abs(code)
        assert suites.passed_alone(BAD, again) == {}


def test_closing_lines_are_added_up() -> None:
    assert suites.total(["1 failed, 20 passed in 3.00s", "2 passed, 1 error in 0.10s", ""]) == (
        "1 failed, 22 passed, 1 errors"
    )
    assert suites.closing(Result(1, "1 failed in 2.00s", cpu_s=1.6, slow=2)) == (
        "1 failed in 2.00s (exit code 1), 2 s of CPU, bounds kept by a calm clock only: 2"
    )
