"""Names in an Nsight Systems export: ids into StringIds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from profiles.nsight.reading import Reading
from profiles.nsight.schemas import INT, TEXT
from profiles.nsight.sqlite_source import SqliteSource


class Strings:
    """The StringIds table."""

    def __init__(self, source: SqliteSource, reading: Reading) -> None:
        columns = {"id": INT, "value": TEXT}
        read = source.read(source.find("STRINGIDS"), columns, tuple(columns))
        self._reading = reading
        self._ids = read["id"].combine_chunks() if read else pa.array([], INT)
        self._values = read["value"].combine_chunks() if read else pa.array([], TEXT)

    def names(self, ids: pa.ChunkedArray, what: str) -> pa.DictionaryArray:
        """The text of each id; null, with a problem noted, where there is none."""
        encoded = ids.combine_chunks().dictionary_encode()
        places = pc.index_in(encoded.dictionary, value_set=self._ids)
        texts = self._values.take(places)
        if texts.null_count:
            self._reading.problem(f"{what}: {texts.null_count} names are not in the file")
        # Two ids can have the same text: encode again, so that a name has one code.
        unique = texts.dictionary_encode()
        codes = unique.indices.take(encoded.indices)
        return pa.DictionaryArray.from_arrays(codes, unique.dictionary)
