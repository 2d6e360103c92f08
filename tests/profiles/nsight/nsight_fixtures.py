"""Small Nsight Systems exports, and one file of every format, made by the tests themselves."""

import gzip
import sqlite3

from nsight_texts import STATS_CSV, STATS_PRINTED, kineto, ncu_details, ncu_raw, stats_json

MS = 1_000_000
PID = 4242
GLOBAL_PID = PID << 24
METRIC_TYPE = (1 << 48) + 0  # the low byte is the GPU

KERNEL_NAMES = ["void softmax<float>(float *)", "gemm_64x64", "void add<int>(int, int *)"]
# start ms, end ms, device, name: two overlap on device 0
KERNELS = [
    (0, 4, 0, 0),
    (2, 6, 0, 1),
    (10, 11, 0, 1),
    (1, 3, 1, 2),
]
KERNEL_TIME_NS = 11 * MS
BUSY_NS = {0: 7 * MS, 1: 2 * MS}

_KERNEL_COLUMNS = (
    'start INTEGER, "end" INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, '
    "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, "
    "registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, "
    "blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, "
    "graphNodeId INTEGER"
)


class Export:
    """An SQLite file as Nsight Systems writes it; tables come one by one."""

    def __init__(self, path):
        self.path = path
        self.connection = sqlite3.connect(path)
        self._strings = {}
        self.table("StringIds", "id INTEGER PRIMARY KEY, value TEXT")

    def table(self, name, columns, rows=()):
        self.connection.execute(f'CREATE TABLE "{name}" ({columns})')
        for row in rows:
            marks = ",".join("?" * len(row))
            self.connection.execute(f'INSERT INTO "{name}" VALUES ({marks})', row)
        return self

    def string(self, text):
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.connection.execute(
                "INSERT INTO StringIds VALUES (?, ?)", (self._strings[text], text)
            )
        return self._strings[text]

    def kernels(self, name="CUPTI_ACTIVITY_KIND_KERNEL", rows=KERNELS, process=GLOBAL_PID):
        def row(number, start, end, device, kernel):
            name_id = self.string(KERNEL_NAMES[kernel])
            place = (device, 1, 7, number, process, name_id, name_id)
            return (start * MS, end * MS, *place, 32, 8, 1, 1, 256, 1, 1, 0, 1024, None)

        self.table(name, _KERNEL_COLUMNS, [row(i, *kernel) for i, kernel in enumerate(rows)])
        return self

    def copies(self):
        return self.table(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            'start INTEGER, "end" INTEGER, deviceId INTEGER, bytes INTEGER, copyKind INTEGER, '
            "srcKind INTEGER, dstKind INTEGER, globalPid INTEGER",
            [(20 * MS, 21 * MS, 0, 4096, 1, 1, 2, GLOBAL_PID)],
        )

    def api_calls(self):
        launch = self.string("cudaLaunchKernel_v7000")
        rows = [(i * MS, i * MS + 500, 0, GLOBAL_PID + 9, i, launch, 0) for i in range(3)]
        rows.append((0, 500, 67, GLOBAL_PID + 9, 0, self.string("cudaLaunchKernel"), 0))
        return self.table(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            'start INTEGER, "end" INTEGER, eventClass INTEGER, globalTid INTEGER, '
            "correlationId INTEGER, nameId INTEGER, returnValue INTEGER",
            rows,
        )

    def ranges(self, name="NVTX_EVENTS"):
        registered = self.string("verify")
        thread = GLOBAL_PID + 9
        return self.table(
            name,
            'start INTEGER, "end" INTEGER, eventType INTEGER, text TEXT, textId INTEGER, '
            "domainId INTEGER, globalTid INTEGER",
            [
                (0, None, 75, "tuner", None, 5, thread),
                (0, 2 * MS, 59, "draft", None, 5, thread),
                (2 * MS, 5 * MS, 59, None, registered, 0, thread),
                (3 * MS, None, 34, "a mark", None, 0, thread),
                (6 * MS, None, 60, "still open", None, 0, thread),
            ],
        )

    def gpu_metrics(self, samples=20):
        names = ["SMs Active [Throughput %]", "GPC Clock Frequency [MHz]", "SM Active"]
        self.table(
            "TARGET_INFO_GPU_METRICS",
            "typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT",
            [(METRIC_TYPE, 0, "", i, name) for i, name in enumerate(names)],
        )
        values = (50, 1_710_000_000, 7)
        return self.table(
            "GPU_METRICS",
            "rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, metricId INTEGER, "
            "value INTEGER",
            [
                (0, (i - 1) * MS, METRIC_TYPE, metric, value)
                for i in range(samples + 1)  # the first is before time zero
                for metric, value in enumerate(values)
            ],
        )

    def graph_spans(self):
        return self.table(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            'start INTEGER, "end" INTEGER, deviceId INTEGER, graphId INTEGER, globalPid INTEGER',
            [(5 * MS, 9 * MS, 0, 1, GLOBAL_PID)],
        )

    def gpus(self, rows):
        return self.table("TARGET_INFO_GPU", "id INTEGER, cuDevice INTEGER, name TEXT", rows)

    def done(self):
        self.connection.commit()
        self.connection.close()
        return self.path


def full_export(path):
    """An export with every table that is read."""
    export = Export(path).kernels().copies().api_calls().ranges().gpu_metrics()
    return export.gpus([(0, 0, "NVIDIA H100"), (1, 1, "NVIDIA H100")]).done()


def make_all(folder):
    """One file of every kind, by name."""
    texts = {
        "stats.csv": STATS_CSV,
        "stats.txt": STATS_PRINTED,
        "stats.json": stats_json(),
        "details.csv": ncu_details(),
        "raw.csv": ncu_raw(),
        "trace.json": kineto(),
    }
    files = {"export.sqlite": full_export(folder / "export.sqlite")}
    for name, text in texts.items():
        files[name] = folder / name
        files[name].write_text(text)
    files["trace.json.gz"] = folder / "trace.json.gz"
    files["trace.json.gz"].write_bytes(gzip.compress(kineto().encode(), mtime=0))
    return files
