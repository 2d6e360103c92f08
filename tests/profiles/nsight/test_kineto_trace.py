import gzip
import json

import pytest
from nsight_texts import event, kineto

from profiles.nsight import UnreadableProfile, read_capture


@pytest.fixture
def read(tmp_path):
    def read_bytes(data):
        path = tmp_path / "profile.dat"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_capture(path)

    return read_bytes


@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_plain_and_gzipped(read, pack):
    capture = read(pack(kineto()))
    summary = capture.summary
    assert (summary.kernels, summary.kernel_time_ns) == (2, 20_500)
    assert [busy.busy_ns for busy in summary.gpu_busy] == [15_250]
    assert (summary.copies, summary.api_calls, summary.ranges) == (1, 1, 1)
    copy = capture.tables["copies"].to_pylist()[0]
    assert (copy["kind"], copy["source_memory"], copy["target_memory"], copy["bytes"]) == (
        "HtoD",
        "pinned",
        "device",
        4096,
    )
    kernel = capture.tables["kernels"].to_pylist()[0]
    assert (kernel["grid_x"], kernel["grid_y"], kernel["grid_z"]) == (1, 2, 3)
    assert summary.state == "complete"


@pytest.mark.parametrize(("begin_us", "said"), [(4000.0, True), (9900.0, False)])
def test_kernels_launched_early_are_said_to_overlap(read, begin_us, said):
    kernels = [event("kernel", "a", 0.0, 10_000.0, device=0)]
    kernels.append(event("kernel", "b", begin_us, 10_000.0, device=0))
    notes = [note.text for note in read(kineto(kernels)).summary.notes]
    text = "add up to 20.0 ms and the GPU was busy for 14.0 ms"
    assert any(text in note for note in notes) is said
    assert any("overlap" in note for note in notes) is said


def test_absolute_times_keep_their_nanoseconds(read):
    text = kineto(
        [event("kernel", "k", 5119464499587.457, 1.371, device=0)],
        baseTimeNanoseconds=1_790_857_026_000_000_000,
    )
    summary = read(text).summary
    assert summary.origin_epoch_ns == 1_790_857_026_000_000_000 + 5_119_464_499_587_457
    assert summary.kernel_time_ns == 1_371


def test_the_categories_of_torch_1_8_and_its_bare_list(read):
    events = [
        event("Kernel", "gemm", 1610366662254562, 397, device=0, stream=7),
        event("Memset", "Memset (Device)", 1610366662254559, 1, device=0, bytes=4),
        event("Runtime", "cudaLaunchKernel", 1610366662254500, 3),
    ]
    capture = read(json.dumps(events))
    assert (capture.summary.kernels, capture.summary.kernel_time_ns) == (1, 397_000)
    assert capture.summary.origin_epoch_ns == 1_610_366_662_254_500_000
    assert capture.tables["copies"]["kind"].to_pylist() == ["memset"]


def test_a_trace_cut_short_gives_what_is_whole_and_says_so(read):
    text = kineto()
    capture = read(text[: text.index("gpu_memcpy")])
    assert capture.summary.kernels == 2
    assert capture.summary.state == "partial"
    assert any("cut short" in n.text or "cannot be read" in n.text for n in capture.summary.notes)


def test_a_damaged_event_costs_only_itself(read):
    text = kineto().replace('"name": "softmax"', '"name": "soft"max"')
    capture = read(text)
    assert (capture.summary.kernels, capture.summary.copies) == (1, 1)
    assert any("1 damaged events" in note.text for note in capture.summary.notes)


def test_control_characters_in_names_are_read(read):
    capture = read(kineto().replace("softmax", "soft\tmax\x01"))
    assert capture.summary.kernels == 2


@pytest.mark.parametrize("time", ["1e400", "-1e30", "NaN", '"soon"', "null"])
def test_impossible_times_are_left_out_with_a_word(read, time):
    capture = read(kineto().replace("105.5", time))
    assert capture.summary.kernels == 1
    assert capture.summary.state == "partial"


def test_half_a_surrogate_pair_in_a_name(read):
    capture = read(kineto([event("kernel", "\ud800", 1, 1)]))
    assert capture.tables["kernels"]["name"].to_pylist() == ["?"]


def test_only_host_work_is_no_idle_gpu(read):
    summary = read(kineto([event("cpu_op", "aten::add", 1, 2)])).summary
    assert (summary.state, summary.gpu_busy) == ("empty", None)


@pytest.mark.parametrize("text", ['{"a": 1}', "{}", '{"traceEvents": 5}'])
def test_json_without_events_is_refused(read, text):
    with pytest.raises(UnreadableProfile, match="traceEvents"):
        read(text)


def test_deep_nesting_does_not_end_the_process(read):
    bomb = '{"traceEvents": [' + '{"args":' + "[" * 200_000
    capture = read(bomb)
    assert capture.summary.state == "partial"


def test_a_gzip_bomb_is_bounded(read, monkeypatch):
    monkeypatch.setattr("profiles.nsight.content.MAX_BYTES", 1 << 20)
    text = kineto([event("kernel", "k", i, 1, device=0) for i in range(20_000)])
    capture = read(gzip.compress(text.encode()))
    assert 0 < capture.summary.kernels < 20_000
    assert any("bytes were read" in note.text for note in capture.summary.notes)
