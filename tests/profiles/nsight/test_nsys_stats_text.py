import pytest
from nsight_texts import STATS_CSV, STATS_PRINTED, stats_json

from profiles.nsight import UnreadableProfile, read_capture


@pytest.fixture
def read(tmp_path):
    """Read a text under a name that says nothing about its format."""

    def read_text(text, encoding="utf-8"):
        path = tmp_path / "profile.dat"
        path.write_bytes(text.encode(encoding))
        return read_capture(path)

    return read_text


def totals_of(capture):
    rows = capture.tables["kernel_totals"].to_pylist()
    return [(row["instances"], row["total_ns"]) for row in rows]


def problems_of(capture):
    return [note.text for note in capture.summary.notes if note.level == "problem"]


@pytest.mark.parametrize("text", [STATS_CSV, STATS_PRINTED, stats_json()])
def test_csv_printed_and_json_say_the_same(read, text):
    capture = read(text)
    assert totals_of(capture) == [(3, 6000), (2, 4000)]
    assert (capture.summary.kernels, capture.summary.kernel_time_ns) == (5, 10_000)
    assert capture.summary.state == "complete"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-16-le"])
def test_encodings_of_redirected_output(read, encoding):
    assert totals_of(read(STATS_CSV, encoding)) == [(3, 6000), (2, 4000)]


def test_headers_before_2021(read):
    text = STATS_CSV.replace("Time (%)", "Time(%)").replace("Avg (ns)", "Average")
    text = text.replace("Min (ns)", "Minimum").replace("Max (ns)", "Maximum")
    capture = read(text)
    assert totals_of(capture) == [(3, 6000), (2, 4000)]
    assert capture.tables["kernel_totals"]["min_ns"].to_pylist() == [1000, 2000]


def test_other_time_units_become_nanoseconds(read):
    capture = read(STATS_CSV.replace("(ns)", "(us)"))
    assert totals_of(capture) == [(3, 6_000_000), (2, 4_000_000)]


def test_semicolons_and_decimal_commas(read):
    text = STATS_CSV.replace(", ", "~").replace(",", ";").replace(".", ",").replace("~", ", ")
    assert totals_of(read(text)) == [(3, 6000), (2, 4000)]


def test_several_tables_in_one_stream(read):
    copies = (
        "Processing [x.sqlite] with [/opt/reports/cuda_gpu_mem_time_sum.py]...\n"
        "Time (%),Total Time (ns),Count,Avg (ns),Operation\n"
        "100.0,500,2,250.0,[CUDA memcpy HtoD]\n\n"
        "Total (MB),Count,Avg (MB),Operation\n"
        "8.389,2,4.194,[CUDA memcpy Host-to-Device]\n"
        "0.000,1,0.000,[CUDA memset]\n"
    )
    capture = read(f"{STATS_CSV}\n{copies}")
    assert totals_of(capture) == [(3, 6000), (2, 4000)]
    assert capture.tables["copy_totals"].to_pylist() == [
        {"kind": "HtoD", "count": 2, "total_bytes": 8_389_000, "total_ns": 500},
        {"kind": "memset", "count": 1, "total_bytes": None, "total_ns": None},
    ]


def test_operating_system_calls_are_not_taken_for_cuda_calls(read):
    text = STATS_CSV.replace("Instances", "Num Calls").replace("gemm_64x64", "ioctl")
    with pytest.raises(UnreadableProfile, match="left out"):
        read(text)


def test_a_table_under_the_name_of_another_report_is_left_out_with_a_word(read):
    other = STATS_CSV.replace("gemm_64x64", "cuckoo").replace("Instances", "Num Calls")
    capture = read(f"{STATS_CSV}\n[6/7] Executing 'osrt_sum' stats report\n\n{other}")
    assert capture.summary.api_calls is None
    assert any("left out" in note.text for note in capture.summary.notes)


def test_a_capture_without_kernel_data_is_empty(read):
    text = "Processing [x.sqlite]...\nSKIPPED: x.sqlite does not contain CUDA kernel data.\n"
    summary = read(text).summary
    assert (summary.state, summary.kernels) == ("empty", None)
    assert "CUDA kernel data" in summary.notes[0].text


def test_rows_that_are_missing_show_in_the_shares(read):
    first_row_only = "".join(STATS_CSV.splitlines(keepends=True)[:2])
    capture = read(first_row_only)
    assert any("60.0 %" in text for text in problems_of(capture))


def test_totals_that_contradict_their_mean_are_a_problem(read):
    capture = read(STATS_CSV.replace("60.0,6000", "60.0,9000"))
    assert any("count times mean" in text for text in problems_of(capture))


def test_a_column_that_is_missing_is_no_zero(read):
    lines = [line.split(",", 2)[0::2] for line in STATS_CSV.splitlines()]
    with pytest.raises(UnreadableProfile):
        read("\n".join(",".join(line) for line in lines))


def test_markup_in_a_name_stays_text(read):
    name = "<script>alert(1)</script>"
    capture = read(STATS_CSV.replace("gemm_64x64", name))
    assert capture.tables["kernel_totals"]["name"].to_pylist()[1] == name
