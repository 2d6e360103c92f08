import pytest
from nsight_texts import ncu_details, ncu_raw

from profiles.nsight import UnreadableProfile, read_capture
from profiles.nsight.cell_numbers import number_style
from profiles.nsight.ncu_units import base_unit

LIGHT = "GPU Speed Of Light Throughput"


@pytest.fixture
def read(tmp_path):
    def read_text(text):
        path = tmp_path / "profile.dat"
        path.write_text(text)
        return read_capture(path)

    return read_text


def metrics_of(capture, launch=0):
    rows = capture.tables["launch_metrics"].to_pylist()
    return {r["metric"]: (r["value"], r["unit"]) for r in rows if r["launch_id"] == launch}


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        (("1,234.56", "21,058,944", "65.77"), "us"),
        (("1,234.56", "21,058,944", "65.77"), "usecond"),
        (("1.234,56", "21.058.944", "65,77"), "us"),  # a European Windows host
        (("1\u202f234,56", "21\u202f058\u202f944", "65,77"), "us"),
        (("1'234.56", "21'058'944", "65.77"), "us"),
    ],
)
def test_details_in_any_locale_and_spelling(read, values, unit):
    capture = read(ncu_details(values, unit))
    assert metrics_of(capture) == {
        "Duration": (1_234_560, "ns"),
        "Elapsed Cycles": (21_058_944, "cycle"),
        "Memory Throughput": (65.77, "%"),
    }
    assert capture.tables["kernels"]["duration_ns"].to_pylist() == [1_234_560] * 2
    assert capture.summary.state == "complete"


def test_a_point_between_thousands_is_read_as_the_file_means_it(read):
    """117.344 ns is 117,344 in a file whose percentages have commas."""
    capture = read(ncu_details(("117.344", "21.058.944", "65,77"), "ns"))
    assert metrics_of(capture)["Duration"] == (117_344, "ns")


def test_two_ways_of_writing_numbers_in_one_file_are_a_problem(read):
    capture = read(ncu_details(("1,234.56", "21.058.944", "65.77")))
    assert metrics_of(capture)["Elapsed Cycles"] == (None, "cycle")
    assert capture.summary.state == "partial"


def test_words_in_place_of_numbers_are_kept_as_words(read):
    capture = read(ncu_details(("1.5", "CachePreferNone", "(!) nan")))
    rows = {r["metric"]: r for r in capture.tables["launch_metrics"].to_pylist()}
    assert (rows["Elapsed Cycles"]["value"], rows["Elapsed Cycles"]["text"]) == (
        None,
        "CachePreferNone",
    )
    assert rows["Memory Throughput"]["value"] is None


def test_the_raw_page_takes_units_from_its_second_row(read):
    capture = read(ncu_raw())
    assert metrics_of(capture, 1) == {
        "gpu__time_duration.sum": (1_041_536, "ns"),
        "launch__grid_size": (1056, None),
    }
    kernel = capture.tables["kernels"].to_pylist()[0]
    assert (kernel["duration_ns"], kernel["grid_x"], kernel["grid_y"]) == (25_408, 64, 2)
    assert capture.summary.gpu_busy is None


def test_a_raw_page_without_its_units_is_partial(read):
    header, _units, *rows = ncu_raw().splitlines()
    capture = read("\n".join([header, *rows, ""]))
    assert capture.tables["kernels"]["duration_ns"].null_count == 2
    assert capture.summary.state == "partial"


def test_advice_of_rules_is_kept(read):
    rows = read(ncu_details()).tables["diagnostics"].to_pylist()
    assert [row["text"] for row in rows] == ["Use less memory"] * 2


def test_no_permission_is_explained(read):
    text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n"
    with pytest.raises(UnreadableProfile, match="NVreg_RestrictProfilingToAdminUsers=0"):
        read(text)


def test_no_kernels_profiled_is_an_empty_capture(read):
    summary = read("==PROF== Connected\n==WARNING== No kernels were profiled.\n").summary
    assert (summary.state, summary.kernels) == ("empty", None)


@pytest.mark.parametrize(
    ("spelling", "base", "scale"),
    [
        ("nsecond", "ns", 1),
        ("msecond", "ns", 1e6),
        ("Kbyte", "byte", 1e3),
        ("Gbyte/second", "byte/s", 1e9),
        ("Tbyte/s", "byte/s", 1e12),
        ("Ghz", "hz", 1e9),
        ("cycle/nsecond", "hz", 1e9),
        ("cycle/usecond", "hz", 1e6),
        ("Kbyte/block", "byte/block", 1e3),
        ("inst/cycle", "inst/cycle", 1),
        ("register/thread", "register/thread", 1),
        ("%", "%", 1),
    ],
)
def test_units(spelling, base, scale):
    assert base_unit(spelling) == (base, pytest.approx(scale))


def test_a_lone_comma_is_a_thousands_separator_where_nothing_speaks_against_it():
    assert number_style(["1,056", "12"]).number("1,056") == 1056
